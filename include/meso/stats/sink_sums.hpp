#pragma once
// What attention sinks are counted by, on the CPU and in a kernel. No Eigen.
#include <meso/stats/running_mean.hpp>

namespace meso {

/// Options of SinkStatistics.
struct SinkOptions {
  bool count_first_query = false;  ///< query 1 sees itself alone; by default its row is left out of everything
  Index sink_key = 0;              ///< key k of the sink rate, 0-based
  double sink_threshold = 0.3;     ///< ε of the sink rate
};

/// Of one query of one head.
struct AttentionRowStatistics {
  double first = 0;        ///< weight on key 1; 0 if the query does not see it
  double other = 0;        ///< largest weight on another visible key; −∞ if there is none
  double null_mass = 0;    ///< p_∅
  double entropy = 0;      ///< −Σ p ln p, nats, p_∅ a summand if > 0
  double sink = 0;         ///< weight on SinkOptions::sink_key; 0 if the query does not see it
  bool sees_first = true;  ///< key 1 is visible
};

/// Counts and sums over the rows of one (layer, head); see SinkStatistics for what they mean.
struct SinkSums {
  Index rows = 0, first = 0, first_with_null = 0, nowhere = 0, sequences = 0, sinks = 0;
  RunningMean first_mass, null_mass, entropy;
  double open_sum = 0;  ///< of the sequence that has not ended: Σ of the weights on sink_key
  Index open_rows = 0;

  /// Adds the row of one query, 0-based.
  MESO_HOST_DEVICE void add(const SinkOptions& options, Index query, const AttentionRowStatistics& row) {
    if (query >= options.sink_key) {
      ++open_rows;
      open_sum += row.sink;
    }
    if (query == 0 && !options.count_first_query) return;
    // A row of zeros has no largest weight; negative weights beside a zero do leave it one.
    const bool alone = !(row.other - row.other == 0);
    const bool largest = row.sees_first && row.first > row.other && (row.first != 0 || !alone);
    ++rows;
    first += largest ? 1 : 0;
    first_with_null += largest && row.first > row.null_mass ? 1 : 0;
    nowhere += row.null_mass > row.first && row.null_mass > row.other ? 1 : 0;
    first_mass.add(row.first);
    null_mass.add(row.null_mass);
    entropy.add(row.entropy);
  }

  /// Ends the sequence whose rows were added; nothing if there are none.
  MESO_HOST_DEVICE void end_sequence(const SinkOptions& options) {
    if (open_rows == 0) return;
    ++sequences;
    sinks += open_sum / static_cast<double>(open_rows) > options.sink_threshold ? 1 : 0;
    open_sum = 0;
    open_rows = 0;
  }

  /// Adds what another has counted, except the rows of a sequence that it has not ended.
  void merge(const SinkSums& other) {
    rows += other.rows;
    first += other.first;
    first_with_null += other.first_with_null;
    nowhere += other.nowhere;
    sequences += other.sequences;
    sinks += other.sinks;
    first_mass.merge(other.first_mass);
    null_mass.merge(other.null_mass);
    entropy.merge(other.entropy);
  }
};

}  // namespace meso
