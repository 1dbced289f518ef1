// Models are written for every target and read back by the reader of `import`.
#include "interop/export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/testing.h"
#include "data/tokenizer_json.h"
#include "interop/export_hf.h"
#include "interop/model_source.h"
#include "interop/text_marks.h"
#include "interop/verify.h"
#include "io/gguf_file.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

ModelConfig Config(const char* shape, NormPlacement norm = NormPlacement::kPre,
                   QkNorm qk_norm = QkNorm::kNone) {
  ModelConfig config{.shape = Shape::Parse(shape), .norm = norm, .qk_norm = qk_norm};
  config.vocabulary = 50;
  config.vocabulary_multiple = 16;
  config.init_std = 0.3;
  return config;
}

class Export : public ::testing::Test {
 protected:
  // A model with random weights, gains among them.
  std::unique_ptr<Model> RandomModel(const ModelConfig& config) {
    auto model = std::make_unique<Model>(
        config, Capacity{.purpose = Purpose::kEvaluate, .length = kVerifiedPositions});
    model->Allocate(*backend_);
    model->params().Initialize(3);
    RandomStream random(1, "gains");
    for (const ParamSpec& spec : model->params().specs()) {
      if (spec.init.kind != ParamInit::Kind::kOnes) continue;
      float* gain = spec.param->value.Row<float>();
      for (int64_t i = 0; i < spec.cols; ++i)
        gain[i] = static_cast<float>(0.5 + random.NextUniform());
    }
    return model;
  }

  ExportJob Job(const Model& model, ExportTarget target, ExportType type = ExportType::kF32) {
    return {.config = model.config(),
            .params = model.params(),
            .tokenizer = nullptr,
            .context_length = 256,
            .name = "random",
            .route = RouteTo(target, type, model.config()),
            .type = type};
  }

  std::string Path(const std::string& name) { return root_ + "/" + name; }

  // Everything in the test's directory but the export itself: nothing.
  void ExpectOnly(const std::string& name) {
    for (const fs::directory_entry& entry : fs::directory_iterator(root_)) {
      EXPECT_EQ(entry.path().filename(), name);
    }
  }

  std::unique_ptr<Backend> backend_ = MakeCpuBackend(1);
  const TestDirectory directory_;
  const std::string root_ = directory_.path();
};

struct Case {
  ModelConfig config;
  ExportTarget target;
  Architecture architecture;
};

std::vector<Case> Cases() {
  using enum Architecture;
  using enum NormPlacement;
  using enum QkNorm;
  const ExportTarget hf = ExportTarget::kHf;
  const ExportTarget vllm = ExportTarget::kVllm;
  const ExportTarget gguf = ExportTarget::kGguf;
  ModelConfig tied = Config("L3-d48-a3x32-f40,24,56");
  tied.embeddings = Embeddings::kTied;
  ModelConfig linear = Config("L2-d32-a4x8-kv2-f2x24");
  linear.rope_scaling = RopeScaling{.kind = RopeScalingKind::kLinear, .factor = 2.5};
  ModelConfig llama3 = Config("L2-d32-a4x32-kv2-f2x24");
  llama3.rope_scaling =
      RopeScaling{.kind = RopeScalingKind::kLlama3, .factor = 8.0, .original_max_position = 64};
  return {
      {Config("L2-d32-a4x8-kv2-f1x40"), hf, kHfLlama},
      {Config("L2-d32-a4x8-kv2-f1x40"), vllm, kHfLlama},
      {Config("L2-d32-a4x8-kv2-f1x40"), gguf, kGgufLlama},
      {Config("L2-d32-a4x16-kv2-f1x40", kPre, kPerHead), hf, kHfQwen3},
      {Config("L2-d32-a4x16-kv2-f1x40", kPre, kPerHead), gguf, kGgufQwen3},
      {Config("L2-d32-a4x8-kv2-f1x40", kPost, kFullWidth), hf, kHfOlmo2},
      {Config("L2-d32-a4x8-kv2-f1x40", kPost, kFullWidth), gguf, kGgufOlmo2},
      {tied, hf, kHfSandglass},
      {tied, vllm, kHfNemotronNas},
      {tied, gguf, kGgufDeci},
      {linear, hf, kHfSandglass},
      {linear, vllm, kHfNemotronNas},
      {linear, gguf, kGgufDeci},
      {llama3, hf, kHfSandglass},
      {llama3, vllm, kHfNemotronNas},
      {llama3, gguf, kGgufDeci},
      {Config("L2-d32-a4x16-kv1-f3x24", kPost, kPerHead), hf, kHfSandglass},
      {Config("L2-d32-a3x16-kv1-f3x24", kPre, kFullWidth), hf, kHfSandglass},
      {Config("L2-d32-a3x16-kv1-f1x24"), hf, kHfSandglass},
      {Config("L2-d32-a3x16-kv1-f1x24"), vllm, kHfNemotronNas},
  };
}

TEST_F(Export, ThenImportGivesTheSameBytes) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(EnumName(c.architecture) + (" " + WriteFields(c.config).dump()));
    const std::unique_ptr<Model> model = RandomModel(c.config);
    const ExportJob job = Job(*model, c.target);
    ASSERT_EQ(job.route.limit, std::nullopt);
    EXPECT_EQ(job.route.architecture, c.architecture);
    WriteExport(job, Path("out"), Existing::kReplace);
    ExpectOnly("out");

    const std::unique_ptr<ModelSource> source = OpenForeignModel(Path("out"));
    EXPECT_EQ(ModelDifferences(c.config, source->config()), std::vector<std::string>());
    EXPECT_EQ(source->context_length(), 256);
    Model loaded(source->config(), {.purpose = Purpose::kEvaluate, .length = 1});
    loaded.Allocate(*backend_);
    source->LoadWeights(loaded.params());
    for (const ParamSpec& spec : loaded.params().specs()) {
      for (const ParamSpec& original : model->params().specs()) {
        if (original.name != spec.name) continue;
        EXPECT_EQ(std::memcmp(spec.param->value.data, original.param->value.data,
                              std::min(spec.elements(), original.elements()) * sizeof(float)),
                  0)
            << spec.name;
      }
    }
    fs::remove_all(Path("out"));
  }
}

TEST_F(Export, IsVerifiedInEveryType) {
  for (const ExportTarget target : {ExportTarget::kHf, ExportTarget::kVllm, ExportTarget::kGguf}) {
    std::map<ExportType, double> rounding;
    for (const ExportType type :
         {ExportType::kF32, ExportType::kF16, ExportType::kBF16, ExportType::kQ8_0}) {
      if (type == ExportType::kQ8_0 && target != ExportTarget::kGguf) continue;
      SCOPED_TRACE(std::string(EnumName(target)) + " " + EnumName(type));
      ModelConfig config = Config("L3-d64-a4x32-kv2-f32,64");
      config.depth_scaled_norm = true;
      const std::unique_ptr<Model> model = RandomModel(config);
      const ExportJob job = Job(*model, target, type);
      WriteExport(job, Path("out"), Existing::kReplace);
      const Verification result = VerifyExport(*model, *backend_, job, Path("out"));
      EXPECT_TRUE(result.sound) << result.first_drift;
      ASSERT_EQ(result.sequences.size(), 1u);
      EXPECT_EQ(result.sequences[0].positions, 201);
      rounding[type] = result.sequences[0].largest_rounding;
      fs::remove_all(Path("out"));
    }
    // Rounding the weights costs something, and the less the more bits there are.
    EXPECT_LT(rounding[ExportType::kF32], 1e-4);
    EXPECT_LT(10 * rounding[ExportType::kF32], rounding[ExportType::kF16]);
    EXPECT_LT(2 * rounding[ExportType::kF16], rounding[ExportType::kBF16]);
  }
}

TEST_F(Export, VerificationNamesTheFirstBlockThatDrifts) {
  const std::unique_ptr<Model> model = RandomModel(Config("L3-d32-a4x8-kv2-f2x24"));
  const ExportJob job = Job(*model, ExportTarget::kGguf);
  WriteExport(job, Path("out.gguf"), Existing::kRefuse);
  // Two values in the second sub-MLP of layer 1, block 3 of the file, change places.
  std::string bytes = ReadFile(Path("out.gguf"));
  {
    const GgufFile file(bytes, "memory");
    const std::string_view tensor = file.Bytes(*file.Find("blk.3.ffn_down.weight"));
    float* values = reinterpret_cast<float*>(const_cast<char*>(tensor.data()));
    std::swap(values[0], values[7]);
  }
  WriteFileAtomically(Path("out.gguf"), bytes);
  const Verification result = VerifyExport(*model, *backend_, job, Path("out.gguf"));
  EXPECT_FALSE(result.sound);
  EXPECT_GT(result.sequences[0].largest, result.tolerance);
  EXPECT_TRUE(result.first_drift.starts_with("layers.1.ffn.1")) << result.first_drift;
  EXPECT_NE(result.first_drift.find("layers.1.ffn.1.w_down differs"), std::string::npos)
      << result.first_drift;
}

TEST_F(Export, RefusesBeforeAnythingIsWritten) {
  const std::unique_ptr<Model> normed =
      RandomModel(Config("L2-d32-a4x8-kv2-f2x24", NormPlacement::kPre, QkNorm::kPerHead));
  const ErrorParts limit = FailureOf(
      [&] { WriteExport(Job(*normed, ExportTarget::kGguf), Path("x.gguf"), Existing::kRefuse); });
  EXPECT_NE(limit.what.find("per-head QK-norm"), std::string::npos) << limit.what;
  EXPECT_NE(limit.remedy.find("--to hf"), std::string::npos) << limit.remedy;

  const std::unique_ptr<Model> model = RandomModel(Config("L2-d32-a4x8-kv2-f2x24"));
  model->params().specs()[4].param->value.Row<float>()[1] = 70000.0f;
  for (const ExportTarget target : {ExportTarget::kHf, ExportTarget::kGguf}) {
    const ErrorParts beyond = FailureOf(
        [&] { WriteExport(Job(*model, target, ExportType::kF16), Path("x"), Existing::kRefuse); });
    EXPECT_NE(beyond.what.find("70000"), std::string::npos) << beyond.what;
    EXPECT_NE(beyond.remedy.find("bf16"), std::string::npos) << beyond.remedy;
  }
  model->params().specs()[4].param->value.Row<float>()[1] = NAN;
  const ErrorParts nan =
      FailureOf([&] { WriteExport(Job(*model, ExportTarget::kHf), Path("x"), Existing::kRefuse); });
  EXPECT_NE(nan.what.find("nan at row 0, column 1"), std::string::npos) << nan.what;
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(Export, ReplacesEarlierExportsAlone) {
  const std::unique_ptr<Model> model = RandomModel(Config("L2-d32-a4x8-kv2-f2x24"));
  const ExportJob hf = Job(*model, ExportTarget::kHf);
  WriteExport(hf, Path("out/"), Existing::kRefuse);
  const ErrorParts there = FailureOf([&] { WriteExport(hf, Path("out"), Existing::kRefuse); });
  EXPECT_NE(there.remedy.find("--force"), std::string::npos) << there.remedy;
  WriteExport(hf, Path("out"), Existing::kReplace);
  ExpectOnly("out");
  // A failing check leaves the earlier export as it was.
  WriteFileAtomically(Path("out/mine.txt"), "kept");
  FailureOf([&] {
    WriteExport(hf, Path("out"), Existing::kReplace,
                [](const std::string&) { throw Error({.what = "drifts"}); });
  });
  EXPECT_EQ(ReadFile(Path("out/mine.txt")), "kept");
  ExpectOnly("out");

  CreateDirectories(Path("out/mine"));
  WriteFileAtomically(Path("out/mine/letter.txt"), "Dear");
  const ErrorParts foreign =
      FailureOf([&] { WriteExport(hf, Path("out/mine"), Existing::kReplace); });
  EXPECT_NE(foreign.what.find("not an export"), std::string::npos) << foreign.what;
  const ErrorParts text = FailureOf([&] {
    WriteExport(Job(*model, ExportTarget::kGguf), Path("out/mine/letter.txt"), Existing::kReplace);
  });
  EXPECT_NE(text.what.find("not an export"), std::string::npos) << text.what;
  EXPECT_EQ(ReadFile(Path("out/mine/letter.txt")), "Dear");
}

// Bytes, "<|endoftext|>", and the token "ab".
Tokenizer SmallTokenizer(SplitPattern pattern, WholePieces whole_pieces = WholePieces::kMerge) {
  TokenizerSpec spec{.splits = {std::string(SplitRegex(pattern))},
                     .tokens = BaseTokens(),
                     .added = {{.id = 0}},
                     .whole_pieces = whole_pieces};
  const auto id = [&](const char* bytes) {
    return static_cast<TokenId>(std::ranges::find(spec.tokens, bytes) - spec.tokens.begin());
  };
  const TokenId a = id("a"), b = id("b");
  spec.tokens.push_back("ab");
  spec.merges = {{a, b, static_cast<TokenId>(spec.tokens.size() - 1)}};
  return Tokenizer(std::move(spec));
}

TEST_F(Export, GgufCarriesTheTokenizer) {
  ModelConfig config = Config("L2-d32-a4x8-kv2-f2x24");
  config.vocabulary = 262;  // four ids more than the tokenizer has
  const std::unique_ptr<Model> model = RandomModel(config);
  const Tokenizer plain = SmallTokenizer(SplitPattern::kCl100k);
  ExportJob job = Job(*model, ExportTarget::kGguf);
  for (const bool begins : {false, true}) {
    const Tokenizer tokenizer =
        begins ? BeginningLikeDocuments(plain) : SmallTokenizer(SplitPattern::kCl100k);
    job.tokenizer = &tokenizer;
    WriteExport(job, Path("out.gguf"), Existing::kReplace);
    const GgufFile file(Path("out.gguf"));
    EXPECT_EQ(file.Require<std::string_view>("tokenizer.ggml.model"), "gpt2");
    EXPECT_EQ(file.Require<std::string_view>("tokenizer.ggml.pre"), "dbrx");
    const auto tokens = file.Require<std::vector<std::string_view>>("tokenizer.ggml.tokens");
    ASSERT_EQ(tokens.size(), 262u);
    EXPECT_EQ(tokens[0], "<|endoftext|>");
    EXPECT_EQ(tokens[257], "ab");
    EXPECT_NE(std::ranges::find(tokens, "Ġ"), tokens.end());
    const auto types = file.Require<std::vector<int64_t>>("tokenizer.ggml.token_type");
    EXPECT_EQ(types[0], 3);
    EXPECT_EQ(types[257], 1);
    EXPECT_EQ(types[261], 5);
    EXPECT_EQ(file.Require<std::vector<std::string_view>>("tokenizer.ggml.merges"),
              (std::vector<std::string_view>{"a b"}));
    EXPECT_EQ(file.Require<int64_t>("tokenizer.ggml.eos_token_id"), 0);
    EXPECT_EQ(file.Require<bool>("tokenizer.ggml.add_bos_token"), begins);
    EXPECT_EQ(file.Get<int64_t>("tokenizer.ggml.bos_token_id").has_value(), begins);
    EXPECT_EQ(file.Require<bool>("tokenizer.ggml.add_eos_token"), false);
  }
}

TEST_F(Export, GgufNamesThePreTokenizerOrRefuses) {
  ModelConfig config = Config("L1-d32-a4x8-f2x24");
  config.vocabulary = 258;
  const std::unique_ptr<Model> model = RandomModel(config);
  ExportJob job = Job(*model, ExportTarget::kGguf);
  const auto name_of = [&](const Tokenizer& tokenizer) {
    job.tokenizer = &tokenizer;
    WriteExport(job, Path("out.gguf"), Existing::kReplace);
    return std::string(GgufFile(Path("out.gguf")).Require<std::string_view>("tokenizer.ggml.pre"));
  };
  EXPECT_EQ(name_of(SmallTokenizer(SplitPattern::kGpt2)), "gpt-2");
  EXPECT_EQ(name_of(SmallTokenizer(SplitPattern::kCl100k)), "dbrx");
  EXPECT_EQ(name_of(SmallTokenizer(SplitPattern::kCl100k, WholePieces::kLookUp)), "llama-bpe");
  TokenizerSpec spec = SmallTokenizer(SplitPattern::kGpt2).spec();
  spec.splits = {R"(\s+|\S+)"};
  const Tokenizer other(spec);
  fs::remove(Path("out.gguf"));
  const ErrorParts failure = FailureOf([&] { name_of(other); });
  EXPECT_NE(failure.what.find("no pre-tokenizer"), std::string::npos) << failure.what;
  EXPECT_NE(failure.where.find("\\S+"), std::string::npos) << failure.where;
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(Export, DirectoriesCarryTheTokenizer) {
  ModelConfig config = Config("L1-d32-a4x8-f2x24");
  config.vocabulary = 258;
  const std::unique_ptr<Model> model = RandomModel(config);
  ExportJob job = Job(*model, ExportTarget::kHf);
  const Tokenizer tokenizer = BeginningLikeDocuments(SmallTokenizer(SplitPattern::kGpt2));
  job.tokenizer = &tokenizer;
  WriteExport(job, Path("out"), Existing::kRefuse);
  EXPECT_EQ(Tokenizer::Load(Path("out/tokenizer.json")).hash(), tokenizer.hash());
  const Json names = Json::parse(ReadFile(Path("out/tokenizer_config.json")));
  EXPECT_EQ(names.at("bos_token"), "<|endoftext|>");
  EXPECT_EQ(names.at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(names.at("model_max_length"), 256);
  const Json generation = Json::parse(ReadFile(Path("out/generation_config.json")));
  EXPECT_EQ(generation.at("eos_token_id"), 0);
}

TEST_F(Export, ConfigurationIsSpelledForOldAndNewTransformers) {
  ModelConfig config = Config("L2-d32-a4x8-kv2-f24,16");
  config.rope_scaling = RopeScaling{.kind = RopeScalingKind::kLinear, .factor = 2.0};
  const std::unique_ptr<Model> model = RandomModel(config);
  const Json own = HfConfigJson(Job(*model, ExportTarget::kHf));
  EXPECT_EQ(own.at("rope_theta"), 10000.0);
  EXPECT_EQ(own.at("rope_scaling"), Json({{"rope_type", "linear"}, {"factor", 2.0}}));
  EXPECT_EQ(own.at("rope_parameters").at("rope_theta"), 10000.0);
  EXPECT_EQ(own.at("rope_parameters").at("factor"), 2.0);
  EXPECT_EQ(own.at("torch_dtype"), own.at("dtype"));
  EXPECT_EQ(own.at("intermediate_sizes"), Json({24, 16}));
  EXPECT_EQ(own.at("vocab_size"), 50);  // without the padded rows
  EXPECT_TRUE(own.at("eos_token_id").is_null());
  const Json blocks = HfConfigJson(Job(*model, ExportTarget::kVllm));
  EXPECT_EQ(blocks.at("num_hidden_layers"), 4);
  EXPECT_EQ(blocks.at("block_configs").size(), 4u);
  EXPECT_EQ(blocks.at("block_configs")[2].at("attention").at("n_heads_in_group"), 2);
  EXPECT_EQ(blocks.at("block_configs")[3].at("attention").at("no_op"), true);
  EXPECT_EQ(blocks.at("block_configs")[3].at("ffn").at("intermediate_size"), 16);
}

}  // namespace
}  // namespace sandglass
