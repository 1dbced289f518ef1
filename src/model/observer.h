// How diagnostics watch a pass. The model's one loop tells its observer, if it has one, before and
// after every sub-layer; without one a pass costs a comparison of a pointer per sub-layer.
#pragma once

#include "model/sub_layer.h"

namespace sandglass {

// Views are valid during the call only.
class Observer {
 public:
  virtual ~Observer() = default;

  // The stream x [M, D] before and after `sub_layer` adds to it, in the order of the list.
  virtual void BeforeForward(const Pass& pass, const SubLayer& sub_layer, ConstView x) = 0;
  virtual void AfterForward(const Pass& pass, const SubLayer& sub_layer, ConstView x) = 0;
  // The gradient dx [M, D] of the stream before `sub_layer`, once it is known; in reverse order.
  virtual void AfterBackward(const Pass& pass, const SubLayer& sub_layer, ConstView dx) = 0;
};

}  // namespace sandglass
