#pragma once
#include <meso/core/gemm.hpp>

// The float and double products cost seconds of compile time a translation unit: they are instantiated once, in
// products.cpp, and every test links them.
#define MESO_TEST_PRODUCTS(EXTERN, S)                                                                             \
  EXTERN template void meso::serial_gemm<S>(const meso::EigenProducts&, const meso::View<const S>&,               \
                                            const meso::View<const S>&, const meso::View<S>&,                     \
                                            const meso::GemmOptions&);                                            \
  EXTERN template void meso::gemm<meso::EigenProducts, S>(meso::CpuContext<meso::EigenProducts>&,                 \
                                                          const meso::View<const S>&, const meso::View<const S>&, \
                                                          const meso::View<S>&, const meso::GemmOptions&, const S*);

MESO_TEST_PRODUCTS(extern, float)
MESO_TEST_PRODUCTS(extern, double)
