// What `sandglass inspect` reports: snapshots of models, freshly initialised or from checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/init_check.h"
#include "inspect/propagation.h"
#include "train/options.h"

namespace sandglass {

struct InspectOptions {
  std::vector<std::string> targets;  // run directories, or shapes as L4-d64-a2x32-f4x64
  std::vector<std::string> at;       // "init", "last", "all" or steps; empty: last, of shapes init
  std::vector<int64_t> seeds;        // of initial weights; empty: the run's, for shapes 1
  std::string data;                  // prepared data; "": the run's, for shapes random tokens
  std::vector<std::string> overrides;  // keys of a run file, for shapes
  std::optional<Family> family;        // of shapes; default hourglass
  int batch = 4;                       // B
  int length = 0;                      // T; 0: as trained, for shapes 128
};

// A model at one moment.
struct Snapshot {
  std::string model;   // shape, and what its configuration changes of its family's
  std::string source;  // run directory, "" for shapes
  std::string at;      // "init" or "step 293"
  int64_t seed = 0;
  std::string text;  // what it was fed: "random tokens" or the data's directory
  Propagation propagation;
  std::optional<InitCheck> init;  // at init only

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("model", self.model, "shape and configuration");
    field("source", self.source, "run directory");
    field("at", self.at, "init or a step");
    field("seed", self.seed, "");
    field("text", self.text, "what it was fed");
    field("propagation", self.propagation, "");
    field("init", self.init, "check of the initial weights");
  }
};

// Snapshots of one model at one moment with different seeds, told in one line: mean and sample
// standard deviation (0 of one seed) of the figures that matter.
struct SnapshotSummary {
  struct Figure {
    double mean = 0.0;
    double deviation = 0.0;

    template <class Self, class Visitor>
    static void VisitFields(Self& self, Visitor&& field) {
      field("mean", self.mean, "");
      field("deviation", self.deviation, "over seeds");
    }
  };
  std::string model;
  std::string at;
  int seeds = 0;
  int64_t additions = 0;  // sub-layers
  Figure loss;
  Figure stream_growth;     // RMS at the end over RMS of the embeddings
  Figure gradient_growth;   // at the first sub-layer over that at the last
  Figure smallest_share;    // over sub-layers
  Figure last_angle;        // mean angle of the last quarter of the sub-layers
  Figure relative_entropy;  // mean over layers
  Figure largest_logit;     // over layers

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("model", self.model, "");
    field("at", self.at, "");
    field("seeds", self.seeds, "");
    field("additions", self.additions, "to the stream");
    field("loss", self.loss, "");
    field("stream_growth", self.stream_growth, "");
    field("gradient_growth", self.gradient_growth, "");
    field("smallest_share", self.smallest_share, "");
    field("last_angle", self.last_angle, "");
    field("relative_entropy", self.relative_entropy, "");
    field("largest_logit", self.largest_logit, "");
  }
};

struct InspectReport {
  std::string version;
  int batch = 0;
  std::vector<Snapshot> snapshots;
  std::vector<SnapshotSummary> summary;  // in the order of their first snapshots

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("version", self.version, "of sandglass");
    field("batch", self.batch, "sequences");
    field("summary", self.summary, "one line for each model and moment");
    field("snapshots", self.snapshots, "");
  }
};

// Measures every target at every moment that is asked for. `report` hears of each snapshot and of
// damaged checkpoints. Throws Error for targets that are neither a run nor a shape and for moments
// that a target does not have; Interrupted between snapshots.
InspectReport Inspect(const InspectOptions& options,
                      const std::function<void(std::string_view)>& report);

std::vector<SnapshotSummary> Summarize(const std::vector<Snapshot>& snapshots);

// For the terminal: a table for each snapshot if `every_sub_layer`, and one of the summaries.
enum class InspectDetail { kSummary, kEverySubLayer };
std::string RenderInspectText(const InspectReport& report, InspectDetail detail);
// One self-contained page with charts over the depth.
std::string RenderInspectHtml(const InspectReport& report, const std::string& date);

}  // namespace sandglass
