// Generation against the memory: every token has to read all weights and the cache once.
#pragma once

#include <cstdint>
#include <string>

#include "base/fields.h"
#include "model/config.h"
#include "train/options.h"

namespace sandglass {

struct DecodeBenchOptions {
  ModelConfig model;
  SystemOptions system;
  Precision precision = Precision::kF32;  // resolved
  int prompt = 128;                       // tokens in the cache before the first is timed
  int tokens = 64;                        // timed, one by one
};

struct DecodeBenchResult {
  std::string shape;
  std::string backend;
  std::string precision;
  double prompt_tokens_per_s = 0.0;
  double tokens_per_s = 0.0;  // from the median time of a token
  double token_min_s = 0.0;
  double token_max_s = 0.0;
  int64_t bytes_per_token = 0;  // weights read, and keys and values of the mean position
  double bytes_per_s = 0.0;
  double bandwidth_bytes_per_s = 0.0;  // copying 64 MiB, bytes read and written
  double share_of_bandwidth = 0.0;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("shape", self.shape, "");
    field("backend", self.backend, "");
    field("precision", self.precision, "");
    field("prompt_tokens_per_s", self.prompt_tokens_per_s, "");
    field("tokens_per_s", self.tokens_per_s, "");
    field("token_min_s", self.token_min_s, "");
    field("token_max_s", self.token_max_s, "");
    field("bytes_per_token", self.bytes_per_token, "");
    field("bytes_per_s", self.bytes_per_s, "");
    field("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, "");
    field("share_of_bandwidth", self.share_of_bandwidth, "");
  }
};

DecodeBenchResult BenchDecode(const DecodeBenchOptions& options);

}  // namespace sandglass
