#include "compare/price.h"

#include "model/model.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace sandglass {

TrainingPrice PriceOf(const RunConfig& config) {
  const ModelConfig& model_config = config.model.config;
  const TrainOptions& train = config.train;
  const Capacity capacity{.purpose = Purpose::kTrain,
                          .batch = train.effective_micro_batch(),
                          .length = train.length,
                          .recompute = config.system.recompute,
                          .activations = ActivationType(Resolve(train.precision, [](auto) {}))};
  config.Validate();
  const Model model(model_config, capacity);
  const ParamTable& params = model.params();
  const int64_t slab_bytes = params.slab_elements() * SizeOf(capacity.dtype);
  TrainingPrice price{
      .name = config.name,
      .config = model_config,
      .parameters = CountParameters(model_config),
      .steps = config.Steps(),
      .length = train.length,
      .flops_per_token = static_cast<double>(CountFlops(model_config, train.length).training),
      .memory = CountTrainingMemory(model_config, capacity)};
  price.memory.optimizer = OptimizerBytes(params, config.optimizer, capacity.dtype);
  price.sequences = SequencesBefore(train, price.steps + 1);
  if (train.average_decay > 0) price.average_bytes = slab_bytes;
  if (config.system.background_saves) {
    price.snapshot_bytes = slab_bytes + price.memory.optimizer + price.average_bytes;
  }
  return price;
}

std::vector<TrainingPrice> PricesOf(const Recipe& recipe) {
  std::vector<TrainingPrice> prices;
  for (const PlannedVariant& variant : PlanVariants(recipe, recipe.text.vocabulary).variants) {
    RunConfig config;
    config.name = variant.name;
    config.model = {variant.family, variant.config};
    config.train = recipe.train.options;
    config.optimizer = recipe.optimizer;
    config.system = recipe.system;
    prices.push_back(PriceOf(config));
  }
  return prices;
}

}  // namespace sandglass
