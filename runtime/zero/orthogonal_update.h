// Muon's update of whole matrices (docs/muon.md): momentum, Nesterov's look ahead, and the Newton-Schulz iteration,
// over memory that is there from the beginning, since a step that is committed must not fail for want of it.
#pragma once

#include <functional>
#include <vector>

#include "kernels/optimizer.h"
#include "runtime/launch/any_vec.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/partition.h"
#include "runtime/rules/mutants.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

class OrthogonalUpdate {
 public:
  static bool wants(const std::vector<ParameterPiece>& pieces);
  // Floats of working memory for a matrix of so many elements, rows and columns.
  static Index floats_for(Index rows, Index cols);

  OrthogonalUpdate(Device& device, const std::vector<ParameterPiece>& pieces, Space space);
  void plant(Mutant mutant) { mutant_ = mutant; }
  // A planted bug: the momentum advances so often in a step.
  void advance_momentum(int times) { times_ = times; }

  // The constants of the step under way.
  void begin_step(double momentum, float grad_factor, float lr);
  // Enqueues it for a matrix: renews the momentum of what `piece` has of it, and makes its direction. gradients,
  // momentum: of the piece. Where the piece has a part of the matrix only (a planted bug), the rest counts as zeros.
  void make(Launcher& launch, const ParameterPiece& piece, const Matrix& matrix, AnyVec gradients,
            VecView<float> momentum);
  // What moves the weights of that matrix then: part(at, direction) for each stretch of the piece from element `at` on.
  using Part = std::function<void(Index at, VecView<float> direction)>;
  void for_each_part(const ParameterPiece& piece, const Matrix& matrix, const Part& part) const;
  // How they move: by the rate times the root of outputs per input, where that is more than 1.
  kernels::OptimizerStep step_of(const Matrix& matrix, float decay) const;

 private:
  struct Work {
    Index rows, cols, side;  // side: the shorter one
    MatView<float> x, next, gram, square;
    VecView<float> blocks, norm2;
  };
  Work work(const Matrix& matrix, Index cols) const;
  void normalize(Launcher& launch, const char* name, const Work& w);
  void iterate(Launcher& launch, const char* name, Work& w);

  BufferPtr memory_;
  Mutant mutant_{};
  int times_ = 1;
  double momentum_ = 0;
  float factor_ = 1, lr_ = 0;
};

}  // namespace seeksim::runtime
