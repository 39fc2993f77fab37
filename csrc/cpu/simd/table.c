/* The inner loops of one path, and the table that the rest of csrc/cpu calls. */
#include "vector.h"

#include "block.c"
#include "elementwise.c"
#include "magnitude.c"
#include "norm.c"
#include "rows.c"
#include "softmax.c"
#include "sparse.c"

const struct dynmo_cpu FN(kernels) = {
	.add = FN(add),
	.to_bfloat16 = FN(to_bfloat16),
	.add_bfloat16 = FN(add_bfloat16),
	.accumulate_fixed = FN(accumulate_fixed),
	.add_fixed = FN(add_fixed),
	.round_fixed = FN(round_fixed),
	.column_sums = FN(column_sums),
	.gelu_forward = FN(gelu_forward),
	.gelu_backward = FN(gelu_backward),
	.adamw = FN(adamw),
	.square_sums = FN(square_sums),
	.mask = FN(mask),
	.match = FN(match),
	.norm_forward = FN(norm_forward),
	.norm_backward_input = FN(norm_backward_input),
	.norm_backward_weight = FN(norm_backward_weight),
	.swiglu_forward = FN(swiglu_forward),
	.swiglu_backward = FN(swiglu_backward),
	.rotate = FN(rotate),
	.combine_row = FN(combine_row),
	.row_max = FN(row_max),
	.exp_sum = FN(exp_sum),
	.sum_exp = FN(sum_exp),
	.exp_row = FN(exp_row),
	.scaled_exp_row = FN(scaled_exp_row),
	.scale_row = FN(scale_row),
	.dot = FN(dot),
	.softmax_backward_row = FN(softmax_backward_row),
	.tile_width = FN(tile_width),
	.tile = TILE_VECTORS * LANES,
	.pack = FN(pack),
	.unpack = FN(unpack),
	.fill = FN(fill),
	.gather = FN(gather),
	.sample = FN(sample),
	.block = FN(block),
};
