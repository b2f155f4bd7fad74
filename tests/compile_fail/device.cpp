// expect: include <meso/cuda.hpp>
#include <meso/model.hpp>

struct OtherDevice {};

int main() { meso::Transformer<float, meso::Gpt2, OtherDevice> model({}); }
