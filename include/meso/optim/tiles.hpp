#pragma once
#include <algorithm>
#include <meso/core/context.hpp>
#include <meso/core/parameter.hpp>

namespace meso::detail {

/// Elements [first, first + count) of a parameter, counted from its own start.
struct ElementTile {
  Index parameter = 0;
  Index first = 0;
  Index count = 0;
};

/// Elements that one tile holds at most: 64 KiB of floats, enough to hide the dispatch.
inline constexpr Index element_tile_size = 16384;

/// Fixed cut of the parameters that are not frozen into tiles of neighboring elements. It depends on the layout alone,
/// never on the number of threads, and lives in the context's workspace.
template <class Products>
Workspace::Scratch<ElementTile> element_tiles(CpuContext<Products>& context, const ParameterLayout& layout) {
  Index count = 0;
  for (const ParameterInfo& info : layout)
    count += info.frozen ? 0 : (info.size() + element_tile_size - 1) / element_tile_size;
  auto tiles = context.workspace.template take<ElementTile>(count);
  ElementTile* tile = tiles.data();
  for (Index i = 0; i < layout.count(); ++i) {
    if (layout[i].frozen) continue;
    for (Index first = 0; first < layout[i].size(); first += element_tile_size)
      *tile++ = {i, first, std::min<Index>(element_tile_size, layout[i].size() - first)};
  }
  return tiles;
}

}  // namespace meso::detail
