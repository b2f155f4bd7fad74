// Measures the largest error of every op in float, against its oracle, and prints the table of docs/numerics.md.
//   numerics_table [DOCUMENT]
// Fails if an error exceeds its bound, or if a row's op, bound and range are not in the document.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "studies.hpp"

namespace {

using namespace meso::test;

/// The worst of `draws` cases of each quantity of a study.
struct Line {
  std::string head;
  double error = 0, ratio = 0;
};

std::vector<Line> measure(const Study& study, meso::Index draws) {
  std::vector<Comparison> worst = study.comparisons();
  for (meso::Index number = 0; number < draws; ++number) {
    Draw draw(test_seed(), study.name, number);
    study.run(draw, worst);
  }
  std::vector<Line> lines;
  for (std::size_t k = 0; k < worst.size(); ++k) {
    const Quantity& q = study.quantities[k];
    lines.push_back({"| " + q.op + " | " + q.bound + " | " + study.range + " |", worst[k].largest_error(),
                     worst[k].largest_ratio()});
    if (worst[k].largest_ratio() > 1) std::fprintf(stderr, "%s: %s\n", q.op.c_str(), worst[k].worst().c_str());
  }
  return lines;
}

int run(const std::string& document) {
  int failures = 0;
  std::printf("| result | bound, in roundings | tested range | largest error | largest error/bound |\n");
  std::printf("|---|---|---|---|---|\n");
  const auto section = [&](const char* title, const std::vector<Study>& studies, meso::Index draws) {
    std::printf("| **%s** | | | | |\n", title);
    for (const Study& study : studies)
      for (const Line& line : measure(study, draws)) {
        std::printf("%s %.3g | %.2g |\n", line.head.c_str(), line.error, line.ratio);
        failures += !(line.ratio <= 1);
        if (document.empty() || document.find(line.head) != document.npos) continue;
        std::fprintf(stderr, "the document has no row %s\n", line.head.c_str());
        ++failures;
      }
  };
  section("Elementary", core_studies<float>(), 400);
  section("Layers", layer_studies<float>(), 400);
  section("Activations", activation_studies<float>(), 400);
  section("Norms", norm_studies<float>(), 400);
  section("Normalizers", normalizer_studies<float>(), 2000);
  section("Attention", attention_studies<float>(), 200);
  section("Statistics", statistics_studies<float>(), 400);
  section("Quantization", quantization_studies<float>(), 400);
  section("Optimizers", optimizer_studies<float>(), 400);
  return failures;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string document;
    if (argc > 1) {
      std::ifstream file(argv[1]);
      document.assign(std::istreambuf_iterator<char>(file), {});
      if (document.empty()) {
        std::fprintf(stderr, "numerics_table: cannot read %s\n", argv[1]);
        return 2;
      }
    }
    return run(document) > 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "numerics_table: %s\n", e.what());
    return 2;
  }
}
