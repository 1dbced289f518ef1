// The program as a user runs it: exit status, standard output and standard error.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "base/file.h"
#include "base/json.h"
#include "base/testing.h"

namespace sandglass {
namespace {

struct Outcome {
  int status = -1;
  std::string out;
  std::string error;
};

constexpr const char* kRun = R"(
name = "small"
[model]
family = "hourglass"
shape = "L2-d16-a2x8-f2x16-kv1"
[data]
path = "data"
[train]
tokens = 128
batch = 2
length = 16
[system]
backend = "cpu"
threads = 1
)";

constexpr const char* kRecipe = R"(
name = "pair"
baseline = "conventional"
seeds = [1]
[text]
prepared = "data"
[train]
tokens = 64
batch = 2
length = 16
[system]
backend = "cpu"
threads = 1
[[variant]]
name = "conventional"
family = "llama"
shape = "L2-d16-a2x8-f1x48"
[[variant]]
name = "hourglass"
family = "hourglass"
shape = "L2-d16-a2x8-f3x16"
)";

// Runs in a directory of its own, which is the program's current one.
class Cli : public ::testing::Test {
 protected:
  // `arguments` is shell text and may redirect standard output; `prefix` goes before the program.
  Outcome Run(const std::string& arguments, const std::string& prefix = "") {
    const std::string command = "cd '" + root_ + "' && { " + prefix + "'" SANDGLASS_PROGRAM "' " +
                                arguments + "; } >out.txt 2>error.txt </dev/null";
    const int result = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(result)) << command;
    return {WEXITSTATUS(result), Read("out.txt"), Read("error.txt")};
  }

  // For commands that succeed; returns standard output.
  std::string Output(const std::string& arguments) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.error;
    return outcome.out;
  }

  Json OutputJson(const std::string& arguments) { return Json::parse(Output(arguments)); }

  // For commands that fail: the status, nothing on standard output, each text on standard error.
  void ExpectFailure(const std::string& arguments, int status,
                     const std::vector<std::string>& texts, const std::string& prefix = "") {
    const Outcome outcome = Run(arguments, prefix);
    EXPECT_EQ(outcome.status, status) << arguments << "\n" << outcome.error;
    EXPECT_EQ(outcome.out, "") << arguments;
    for (const std::string& text : texts) {
      EXPECT_NE(outcome.error.find(text), std::string::npos)
          << arguments << ": no \"" << text << "\" in\n"
          << outcome.error;
    }
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Read(const std::string& name) { return ReadFile(Path(name)); }
  void Write(const std::string& name, std::string_view text) {
    WriteFileAtomically(root_ + "/" + name, text);
  }

  // data/, made by the program from a small text.
  void PrepareData() {
    Write("text.txt", RandomText(40));
    Output("tokenizer train --vocabulary 300 --documents paragraph --out t.json text.txt");
    Output("prepare --tokenizer t.json --documents paragraph --validation 0.2 --out data text.txt");
  }

 private:
  const TestDirectory directory_;
  const std::string root_ = directory_.path();
};

TEST_F(Cli, TrainingSaysFirstWhatComputes) {
  PrepareData();
  Write("run.toml", kRun);
  const Outcome trained = Run("train run.toml --out run");
  ASSERT_EQ(trained.status, 0) << trained.error;
  const std::string banner = trained.error.substr(0, trained.error.find('\n'));
  EXPECT_TRUE(std::regex_match(
      banner, std::regex("cpu: [A-Z0-9_]+, (own products|oneDNN|OpenBLAS|BLIS|CBLAS)[^,]*, "
                         "1 thread, f32")))
      << banner;
  EXPECT_EQ(Json::parse(Read("run/run.json")).at("backend"), banner);
}

TEST_F(Cli, FromTextToComparison) {
  PrepareData();
  Write("run.toml", kRun);
  Write("pair.toml", kRecipe);

  const Json trained = OutputJson("train run.toml --out run --json");
  EXPECT_EQ(trained.at("steps"), 4);
  EXPECT_EQ(trained.at("run_directory"), "run");
  const double loss = trained.at("validation_loss");
  EXPECT_GT(loss, 1.0);
  EXPECT_LT(loss, 8.0);

  const Json evaluated = OutputJson("eval run --json");
  EXPECT_NEAR(evaluated.at("loss"), loss, 1e-6);
  EXPECT_EQ(evaluated.at("split"), "validation");
  EXPECT_NE(Output("eval run --threads 1").find("bits/byte"), std::string::npos);

  const std::string seeded = "generate run --prompt 'in the' --tokens 24 --threads 1 --seed ";
  const std::string text = Output(seeded + "7");
  EXPECT_TRUE(text.starts_with("in the")) << text;
  EXPECT_GT(text.size(), 10u);
  EXPECT_EQ(Output(seeded + "7"), text);
  EXPECT_NE(Output(seeded + "8"), text);
  const Json greedy = OutputJson("generate run --temperature 0 --tokens 5 --threads 1 --json");
  EXPECT_EQ(greedy.at("prompt"), "");
  EXPECT_LE(greedy.at("ids").size(), 5u);
  EXPECT_EQ(OutputJson("generate run --temperature 0 --tokens 5 --threads 1 --json"), greedy);
  EXPECT_TRUE(greedy.at("text").is_string());
  ExpectFailure("generate run --tokens 1048576", 1,
                {"1048576 tokens after a prompt of 1", "--tokens", "at most 1048576", "lower"});
  ExpectFailure("generate run --tokens 5000000000", 1, {"5000000000", "at most 1048576"});
  ExpectFailure("generate run --seed -1", 2, {"--seed: -1 is negative", "from 0"});

  // An hourglass for every target; the last is there already.
  const auto exported = [&](const std::string& arguments) {
    return OutputJson("export run --verify --threads 1 --json " + arguments);
  };
  EXPECT_EQ(exported("--to hf --out hf").at("architecture"), "SandglassForCausalLM");
  EXPECT_EQ(exported("--to vllm --type bf16 --out vllm").at("architecture"), "DeciLMForCausalLM");
  const Outcome gguf_export =
      Run("export run --verify --threads 1 --json --to gguf --type f16 --out out.gguf");
  const Json gguf = Json::parse(gguf_export.out);
  // What takes long for a large model says how far it is.
  for (const char* line : {"load  100.0%", "write  100.0%", "verify  100.0%"}) {
    EXPECT_NE(gguf_export.error.find(line), std::string::npos) << gguf_export.error;
  }
  EXPECT_EQ(gguf.at("architecture"), "deci");
  EXPECT_EQ(gguf.at("bos"), "<|endoftext|>");
  EXPECT_EQ(gguf.at("verification").at("sequences").size(), 2u);
  ExpectFailure("export run --to gguf --out out.gguf", 1, {"out.gguf", "--force"});
  ExpectFailure("export run --to gguf --type q8_0 --out q.gguf", 1,
                {"blocks of 32", "d_model = 16", "--type bf16"});
  EXPECT_NE(Output("export run --to gguf --out out.gguf --force --threads 1").find("deci, f32"),
            std::string::npos);
  // It comes back as it went, and again.
  EXPECT_EQ(
      OutputJson("export hf --to gguf --out again.gguf --verify --threads 1 --json").at("bos"),
      "<|endoftext|>");

  // The finished run is there: again the same result, but no other run in its place.
  EXPECT_EQ(OutputJson("train run.toml --out run --json").at("validation_loss"),
            trained.at("validation_loss"));
  ExpectFailure(
      "train run.toml --out run --set train.batch=4", 1,
      {"run of another configuration", "train.batch (2, now 4)", "where:    run", "--fresh"});

  const std::string report = Output("compare pair.toml --out pair");
  EXPECT_NE(report.find("hourglass"), std::string::npos) << report;
  EXPECT_NE(report.find("report: pair/report.html"), std::string::npos) << report;
  EXPECT_NE(Read("pair/report.html").find("conventional"), std::string::npos);
}

TEST_F(Cli, ComputesWhatOtherProgramsStored) {
  const std::string golden = SANDGLASS_SOURCE_DIR "/src/interop/testdata/golden/";
  for (const std::string model : {"llama", "deci.gguf/model.gguf"}) {
    SCOPED_TRACE(model);
    const std::string path = "'" + golden + model + "'";
    EXPECT_EQ(OutputJson("import " + path + " --out run --json").at("tokenizer_hash"), "");
    Output("logits run --ids 1,2,3 --out run.npy --threads 1");
    Output("logits " + path + " --ids 1,2,3 --out model.npy --threads 1");
    EXPECT_EQ(Read("run.npy"), Read("model.npy"));
    EXPECT_TRUE(Read("run.npy").starts_with("\x93NUMPY"));
    const Json top = OutputJson("logits run --ids 1,2,3 --top 2 --threads 1 --json").at("top");
    ASSERT_EQ(top.size(), 2u);
    EXPECT_GE(top[0].at("probability"), top[1].at("probability"));
    EXPECT_GT(OutputJson("logits run --ids 1,2,3 --gradients g.safetensors --threads 1 --json")
                  .at("loss"),
              0.0);
    ExpectFailure("import " + path + " --out run", 1, {"the place is taken", "where:    run"});
    ExpectFailure("generate run --prompt hello", 1, {"no tokenizer", "sandglass logits"});
    ExpectFailure("eval run", 1, {"no data of its own", "--data"});
    std::filesystem::remove_all(Path("run"));
  }
  const std::string ids = "logits '" + golden + "llama' --threads 1 --ids ";
  ExpectFailure(ids + "1,,2", 1, {"\"1,,2\" is not a list", "--ids"});
  ExpectFailure(ids + "1,x", 1, {"is not a list"});
  ExpectFailure(ids + "1,99999999", 1, {"there is no token id 99999999"});
  ExpectFailure(ids + "1 --gradients g.safetensors", 1, {"one id predicts nothing"});
  ExpectFailure("logits nothing --ids 1", 1, {"there is no such model", "where:    nothing"});
  ExpectFailure("import nothing --out run", 1, {"there is no such model"});
}

TEST_F(Cli, InspectsRunsAndShapes) {
  PrepareData();
  Write("run.toml", kRun);
  Output("train run.toml --out runs/small");
  const Json report = OutputJson("inspect runs/small --at all --batch 2 --html page.html --json");
  ASSERT_EQ(report.at("snapshots").size(), 2u);
  EXPECT_EQ(report.at("snapshots")[0].at("at"), "init");
  EXPECT_TRUE(report.at("snapshots")[0].at("init").is_object());
  EXPECT_EQ(report.at("snapshots")[1].at("at"), "step 4");
  EXPECT_EQ(report.at("snapshots")[1].at("text"), "data");
  EXPECT_LT(report.at("snapshots")[1].at("propagation").at("loss"),
            report.at("snapshots")[0].at("propagation").at("loss"));
  EXPECT_NE(Read("page.html").find("Sandglass inspection"), std::string::npos);
  EXPECT_NE(Output("inspect runs/small").find("layers.1.ffn.1"), std::string::npos);
  EXPECT_NE(Output("inspect L2-d16-a2x8-f2x16 --set model.norm=post --seeds 1,2 --summary")
                .find("norm=post"),
            std::string::npos);
  ExpectFailure("inspect runs/small --at 3", 1, {"no checkpoint \"3\"", "init, last, all", "4"});
  ExpectFailure("inspect runs/small --batch 1000", 1, {"windows of 16 tokens", "--batch"});
  ExpectFailure("inspect L2-d16^", 1, {"unexpected \"^\""});
}

TEST_F(Cli, ListsFiltersAndDiffsRuns) {
  PrepareData();
  Write("run.toml", kRun);
  Output("train run.toml --out runs/a");
  Output("train run.toml --out runs/b --set train.batch=4");
  const Json all = OutputJson("runs list --json");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].at("directory"), "runs/a");
  EXPECT_EQ(all[0].at("status"), "finished");
  const Json some =
      OutputJson("runs list --where 'batch = 4' --columns directory,train.batch --json");
  ASSERT_EQ(some.size(), 1u);
  EXPECT_EQ(some[0].at("train.batch"), 4);
  const Json diff = OutputJson("runs diff runs/a runs/b --json");
  EXPECT_EQ(diff.at("configuration"), Json({{"train.batch", {2, 4}}}));
  EXPECT_NE(Output("runs diff runs/a runs/b").find("result.validation_loss"), std::string::npos);
  EXPECT_NE(Output("runs list").find("L2-d16-a2x8-kv1-f2x16"), std::string::npos);
  EXPECT_EQ(OutputJson("runs rebuild --json").at("runs"), 2);
  ExpectFailure("runs list --where 'vall_loss < 3'", 1, {"vall_loss", "did you mean \"val_loss\""});
  ExpectFailure("runs list --root none", 1, {"no such directory of runs", "--root"});
  ExpectFailure("runs diff runs/a none", 1, {"not a run directory"});
}

TEST_F(Cli, HelpAndVersion) {
  EXPECT_NE(Output("--help").find("sandglass compare recipes/kjv-demo.toml"), std::string::npos);
  EXPECT_NE(Output("generate --help").find("--temperature"), std::string::npos);
  EXPECT_NE(Output("--version").find('.'), std::string::npos);
  ExpectFailure("", 2, {"Examples:", "sandglass VERB --help"});
  ExpectFailure("tokenizer", 2, {"encode", "decode"});
}

TEST_F(Cli, MistypedWordsAreNamedWithASuggestion) {
  ExpectFailure("foo", 2, {"unknown verb \"foo\"", "expected: one of plan", "sandglass --help"});
  ExpectFailure("trian run.toml", 2, {"unknown verb \"trian\"", "did you mean \"train\"?"});
  ExpectFailure("tokenizer trian", 2,
                {"\"trian\"", "where:    sandglass tokenizer", "did you mean \"train\"?"});
  ExpectFailure("plan L2-d16-a2x8-f2x16 --lentgh=16", 2,
                {"unknown argument \"--lentgh\"", "sandglass plan", "did you mean \"--length\"?"});
  ExpectFailure("eval run --zzzzzz", 2, {"\"--zzzzzz\"", "sandglass eval --help"});
  ExpectFailure("train", 2, {"RUN_FILE"});
}

TEST_F(Cli, BadInputSaysWhatWhereAndHow) {
  ExpectFailure("train none.toml", 1, {"No such file", "where:    none.toml", "check the path"});
  ExpectFailure("eval none", 1, {"none"});
  ExpectFailure("tokenizer train --out t.json none.txt", 1, {"none.txt"});
  ExpectFailure("plan L12-d768-a12x64^f8x384", 1,
                {"unexpected \"^\"", "character 16\n", "\n                     ^", "\"-\""});
  Write("recipe.toml", std::string(kRecipe) + "famly = \"llama\"\n");
  ExpectFailure(
      "compare recipe.toml", 1,
      {"unknown key \"famly\"", "recipe.toml:22, variant[1].famly", "did you mean \"family\"?"});
  Write("run.toml", kRun);
  ExpectFailure("train run.toml --set train.batch=1.5", 1,
                {"1.5 is not a whole number", "--set train.batch=1.5", "a whole number"});
  ExpectFailure("train run.toml", 1,
                {"no such data directory", "where:    data\n", "sandglass prepare"});
  ExpectFailure("plan --baseline L2-d16-a2x8-f2x16 --hold atention", 1,
                {"\"atention\"", "where:    --hold\n", "did you mean \"attention\"?"});
  ExpectFailure("eval " + std::string(5000, 'x'), 1, {"File name too long", "xxxx"});
}

TEST_F(Cli, TokenizersEncodeAndDecode) {
  PrepareData();
  const auto encode = [&](const std::string& arguments, const std::string& text) {
    Write("in.txt", text);
    return Output("tokenizer encode --tokenizer t.json " + arguments + " in.txt");
  };
  const std::string text = "in the <|endoftext|> beginning\n";
  const std::string ids = encode("", text);
  EXPECT_EQ(ids.find_first_not_of("0123456789 \n"), std::string::npos) << ids;
  const Json list = Json::parse(encode("--json", text));
  EXPECT_EQ(ids, fmt::format("{}\n", fmt::join(list.get<std::vector<int>>(), " ")));
  // The name of a special token is text unless it is asked for, and hidden unless it is shown.
  const Json parsed = Json::parse(encode("--json --special parse", text));
  EXPECT_EQ(std::ranges::count(parsed, Json(0)), 1);
  EXPECT_EQ(std::ranges::count(list, Json(0)), 0);
  Write("parsed.txt", parsed.dump());
  Write("ids.txt", ids);
  const std::string decode = "tokenizer decode --tokenizer t.json ";
  EXPECT_EQ(Output(decode + "ids.txt"), text);
  EXPECT_EQ(Output(decode + "parsed.txt"), "in the  beginning\n");
  EXPECT_EQ(Output(decode + "--special show parsed.txt"), text);
  // JSON lines, and standard input.
  const std::string lines = encode("--jsonl", "\"in the\"\n{\"text\": \"word\\n\"}\n");
  Write("lines.txt", lines);
  EXPECT_EQ(Output(decode + "--jsonl lines.txt"), "\"in the\"\n\"word\\n\"\n");
  EXPECT_EQ(Run(decode + "-", "printf '%s' \"$(cat ids.txt)\" | ").out, text);

  ExpectFailure("tokenizer encode --tokenizer none.json in.txt", 1, {"none.json"});
  ExpectFailure("tokenizer encode --tokenizer in.txt in.txt", 1, {"in.txt", "not a JSON file"});
  Write("bad.txt", "1 2 x3");
  ExpectFailure(decode + "bad.txt", 1, {"\"x3\" is no token id", "bad.txt"});
  Write("bad.txt", "99999");
  ExpectFailure(decode + "bad.txt", 1, {"token id 99999 is outside the vocabulary"});
  Write("in.txt", "[1, 2]\n");
  ExpectFailure("tokenizer encode --tokenizer t.json --jsonl in.txt", 1,
                {"the line holds no text", "in.txt:1"});
}

TEST_F(Cli, TokenizersOfOtherProgramsAreConverted) {
  const std::string pieces = SANDGLASS_SOURCE_DIR "/src/data/testdata/sentencepiece.model";
  EXPECT_NE(Output("tokenizer convert " + pieces + " --out t.json").find("t.json (tokenizer "),
            std::string::npos);
  Write("in.txt", "In the beginning  God \u6F22 [INST]\n");
  const auto ids = [&](const std::string& tokenizer) {
    return Output("tokenizer encode --tokenizer " + tokenizer + " in.txt");
  };
  EXPECT_EQ(ids("t.json"), ids(pieces));
  const Json shown = OutputJson("tokenizer show t.json --json");
  EXPECT_EQ(shown.at("kind"), "BPE with byte fallback");
  EXPECT_EQ(shown.at("hash"), OutputJson("tokenizer show " + pieces + " --json").at("hash"));
  EXPECT_NE(Output("tokenizer show t.json").find("special        <unk> (0)"), std::string::npos);
  ExpectFailure("tokenizer convert in.txt --out again.json", 1, {"in.txt", "not a JSON file"});
  EXPECT_FALSE(std::filesystem::exists(Path("again.json")));
}

TEST_F(Cli, TooLittleMemoryIsOneClearError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more address space than the limit of this test";
#endif
  PrepareData();
  ExpectFailure("tokenizer encode --tokenizer t.json big.txt", 1, {"not enough memory", "smaller"},
                "truncate -s 1G big.txt; ulimit -v 500000; ");
}

TEST_F(Cli, AnInterruptExitsWith130) {
  ExpectFailure("tokenizer train --documents line --threads 1 --out t.json -", 130,
                {"interrupted while training the tokenizer", "run the same command again"},
                "yes in the beginning | timeout --foreground --preserve-status -s INT 1 ");
}

TEST_F(Cli, TrainingThatIsKilledAndRunsOutOfDiskEndsAsIfNothingHadHappened) {
  const Json report = OutputJson("selftest resume --kills 12 --json");
  EXPECT_EQ(report.at("kills"), 12);
  EXPECT_GT(report.at("kills_in_save"), 0);
  EXPECT_GT(report.at("checkpoints"), 0);
  // Where mounts are not allowed, the test says so.
  EXPECT_TRUE(report.at("full_disks") > 0 || report.at("full_disk_obstacle") != "");
  EXPECT_EQ(Output("selftest resume --kills 1").substr(0, 20), "killed       1 times");
}

TEST_F(Cli, PlanPricesARunFile) {
  Write("run.toml", kRun);
  ExpectFailure("plan run.toml", 1, {"vocabulary is not known", "--set model.vocabulary=50304"});
  const std::string plan = "plan run.toml --set model.vocabulary=300 --flop-per-s 1e9";
  const Json priced = OutputJson(plan + " --json");
  EXPECT_EQ(priced.at("runs")[0].at("steps"), 4);
  EXPECT_EQ(priced.at("runs")[0].at("tokens"), 128);
  EXPECT_NE(Output(plan).find("time at 1e+09 FLOP/s"), std::string::npos);
  ExpectFailure("plan run.toml L2-d16-a2x8-f2x16", 1, {"a file and other things to plan"});
  ExpectFailure("plan L2-d16-a2x8-f2x16 --flop-per-s 1e9", 1, {"belong to a recipe or run file"});
}

TEST_F(Cli, DataShowNamesWhatAStepReads) {
  PrepareData();
  Write("run.toml", kRun);
  const Json step = OutputJson("data show run.toml --step 3 --json");
  ASSERT_EQ(step.at("samples").size(), 2u);
  const Json& sample = step.at("samples")[0];
  EXPECT_EQ(sample.at("position"), 4);
  EXPECT_EQ(sample.at("source"), "data/train.bin");
  EXPECT_EQ(sample.at("ids").size(), 16u);
  EXPECT_EQ(sample.at("targets")[0], sample.at("ids")[1]);
  EXPECT_FALSE(sample.at("text").get<std::string>().empty());
  Output("train run.toml --out run");
  const Json of_run = OutputJson("data show run --step 3 --json");
  EXPECT_EQ(of_run.at("samples"), step.at("samples"));
  EXPECT_NE(Output("data show run --step 1000000").find("epoch"), std::string::npos);
  ExpectFailure("data show run --step 0", 2, {"--step"});
}

TEST_F(Cli, DataShowFollowsWhatARunPassedOver) {
  PrepareData();
  Write("run.toml", kRun);
  Output(
      "train run.toml --out run --set train.tokens=1024 --set train.checkpoint_every=3 "
      "--set train.spikes.z_score=1 --set train.spikes.window=3 "
      "--set train.spikes.action=rewind --set train.spikes.max_rewinds=50 "
      "--set optimizer.learning_rate=1e-2");
  EXPECT_GT(Json::parse(Read("run/result.json")).at("rewinds"), 0);
  const Json last = OutputJson("data show run --step 32 --json");
  EXPECT_GT(last.at("passed_over"), 0);
  EXPECT_EQ(last.at("samples")[0].at("position"), 62 + last.at("passed_over").get<int>());
  EXPECT_NE(Output("data show run --step 32").find("passed over after loss spikes"),
            std::string::npos);
  Output("train run.toml --out branch --set train.tokens=1280 --set train.branch_from=run");
  ExpectFailure("data show branch --step 3", 1, {"a branch of", "a step from 33 on", "run"});
  EXPECT_EQ(OutputJson("data show branch --step 33 --json").at("samples")[0].at("position"),
            64 + last.at("passed_over").get<int>());
}

TEST_F(Cli, AveragedWeightsCanBeChosen) {
  PrepareData();
  Write("run.toml", kRun);
  const Json trained = OutputJson("train run.toml --out run --json --set train.average_decay=0.5");
  EXPECT_NE(trained.at("average_validation_loss"), trained.at("validation_loss"));
  const Json average = OutputJson("eval run --weights average --json");
  EXPECT_NEAR(average.at("loss"), trained.at("average_validation_loss"), 1e-6);
  EXPECT_EQ(average.at("weights"), "average");
  EXPECT_NEAR(OutputJson("eval run --weights raw --json").at("loss"), trained.at("validation_loss"),
              1e-6);
  // Every verb that takes weights: what they export is what they compute with.
  Output("export run --weights average --to hf --out hf --verify --threads 1");
  const auto logits = [&](const std::string& model) {
    return OutputJson("logits " + model + " --ids 1,2,3 --top 1 --threads 1 --json").at("top");
  };
  EXPECT_EQ(logits("run --weights average"), logits("hf"));
  EXPECT_NE(logits("run"), logits("hf"));
  Output("generate run --weights average --tokens 3 --threads 1");
  ExpectFailure("logits hf --weights average --ids 1", 1, {"have no averaged weights", "hf"});
  ExpectFailure("eval run --weights mean", 1, {"\"mean\"", "raw average"});
  Output("train run.toml --out plain");
  for (const std::string verb : {"eval plain", "generate plain", "logits plain --ids 1",
                                 "export plain --to hf --out plain-hf"}) {
    ExpectFailure(verb + " --weights average", 1,
                  {"holds no averaged weights", "train.average_decay"});
  }
  EXPECT_FALSE(std::filesystem::exists(Path("plain-hf")));
}

TEST_F(Cli, AnyTokenizerPreparesDataAndReadsTokenFiles) {
  PrepareData();
  Write("run.toml", kRun);
  Output("train run.toml --out run");
  Output("export run --to gguf --out model.gguf --threads 1");
  Output(
      "prepare --tokenizer model.gguf --documents paragraph --validation 0.2 --out again text.txt");
  EXPECT_EQ(Read("again/train.bin"), Read("data/train.bin"));
  EXPECT_EQ(Read("again/validation.bin"), Read("data/validation.bin"));
  std::filesystem::create_directory(Path("ids"));
  for (const std::string name : {"train", "validation"}) {
    std::filesystem::copy_file(Path("data/" + name + ".bin"), Path("ids/" + name + ".bin"));
  }
  Write("ids.toml",
        std::string(kRun).replace(std::string(kRun).find("path = \"data\""), 13,
                                  "path = \"ids/train.bin\"\nvalidation = \"ids/validation.bin\"\n"
                                  "tokenizer = \"model.gguf\""));
  EXPECT_GT(OutputJson("train ids.toml --out ids-run --json").at("bits_per_byte"), 0.0);
  EXPECT_TRUE(OutputJson("data show ids.toml --step 1 --json").at("samples")[0].contains("text"));
  EXPECT_NE(Output("eval ids-run").find("bytes of text"), std::string::npos);
}

TEST_F(Cli, TheLocaleChangesNoToken) {
  PrepareData();
  Write("accents.txt", "\u00e9t\u00e9 \u6f22\u5b57 \U0001F600 \u00a0 na\u00efve \u0130stanbul");
  const std::string encode = "tokenizer encode --tokenizer t.json accents.txt";
  const std::string ids = Output(encode);
  for (const char* locale : {"C", "POSIX", "C.UTF-8", "tr_TR.ISO-8859-9", "nonsense"}) {
    const Outcome outcome = Run(encode, "LC_ALL=" + std::string(locale) + " ");
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.out, ids) << locale;
  }
}

TEST_F(Cli, MixturesAndDocumentMaskingFromTheRunFile) {
  PrepareData();
  const std::string mixture = std::string(kRun).replace(
      std::string(kRun).find("path = \"data\""), 13,
      "document_masking = true\n[[data.sources]]\npath = \"data\"\nweight = 3\n"
      "[[data.sources]]\npath = \"data/train.bin\"\nvalidation = \"data/validation.bin\"\n"
      "weight = 1");
  Write("run.toml", mixture);
  const Json trained = OutputJson("train run.toml --out run --json");
  EXPECT_GT(trained.at("bits_per_byte"), 0.0);
  EXPECT_NEAR(OutputJson("eval run --json").at("loss"), trained.at("validation_loss"), 1e-6);
  const Json step = OutputJson("data show run --step 2 --json --set train.batch=2");
  EXPECT_EQ(step.at("samples")[0].at("starts").size(), 16u);
  Write("mixed.toml", std::string(mixture).replace(mixture.find("weight = 1"), 10, "tokens = 1"));
  ExpectFailure("data show mixed.toml --step 1", 1, {"shares of the sources are mixed"});
}

TEST_F(Cli, IdsWithoutATokenizer) {
  PrepareData();
  std::filesystem::create_directory(Path("ids"));
  for (const char* name : {"train", "validation"}) {
    std::filesystem::copy_file(Path("data/" + std::string(name) + ".bin"),
                               Path("ids/" + std::string(name) + ".bin"));
  }
  const std::string ids = std::string(kRun).replace(
      std::string(kRun).find("path = \"data\""), 13,
      "path = \"ids/train.bin\"\nvalidation = \"ids/validation.bin\"\nvocabulary = 300");
  Write("run.toml", ids);
  const Json trained = OutputJson("train run.toml --out run --json");
  EXPECT_EQ(trained.at("validation_bytes"), 0);
  EXPECT_NE(Output("eval run").find("not available"), std::string::npos);
  EXPECT_FALSE(OutputJson("data show run --step 1 --json").at("samples")[0].contains("text"));
  ExpectFailure("data show run.toml --step 1 --set data.vocabulary=0", 1, {"data.vocabulary"});
  ExpectFailure("data show run.toml --step 1 --set data.vocabulary=5", 1,
                {"outside the vocabulary", "ids/train.bin, token"});
  ExpectFailure("data show run.toml --step 1 --set data.document_masking=true", 1,
                {"document masking needs"});
}

TEST_F(Cli, DataCheckFindsWhatWasPlanted) {
  Write("text.txt", RandomText(40));
  Write("more.txt", RandomText(3) + "a line of its own\n");
  Output("tokenizer train --vocabulary 300 --documents paragraph --out t.json text.txt");
  Output(
      "prepare --tokenizer t.json --documents paragraph --out data text.txt "
      "--validation-input more.txt");
  const Json report = OutputJson("data check data --json --passage 20");
  EXPECT_EQ(report.at("train_documents"), 40);
  EXPECT_EQ(report.at("validation_documents"), 4);
  EXPECT_EQ(report.at("shared_documents"), 3);
  EXPECT_EQ(report.at("train_repeats"), 0);
  EXPECT_GT(report.at("shared_passages"), 2);
  EXPECT_NE(Output("data check data").find("document 0 of data/train.bin"), std::string::npos);
}

TEST_F(Cli, PlanPrintsJson) {
  const Json plan = OutputJson("plan L2-d16-a2x8-f2x16-kv1 --vocabulary 300 --json");
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].at("shape"), "L2-d16-a2x8-kv1-f2x16");
  EXPECT_TRUE(plan[0].at("parameters").is_object());
}

TEST_F(Cli, AResultThatCannotBeWrittenIsAFailure) {
  for (const char* command : {"plan L2-d16-a2x8-f2x16-kv1", "plan L2-d16-a2x8-f2x16-kv1 --json",
                              "--help", "train --keys", "compare --keys"}) {
    ExpectFailure(std::string(command) + " >/dev/full", 1,
                  {"cannot write the result to standard output", "free some space"});
  }
}

}  // namespace
}  // namespace sandglass
