/* The calls on sparse matrices. Whole blocks go by blocks.cu; other entries one of two ways,
 * by what their shape and number promise:
 *
 *   lists   activations by tiles, the matrix as lists: sparse_multiply.cu and
 *           sparse_sample.cu. The time falls with the entries.
 *   dense   the matrix written out with its zeros, and a dense product: a dense
 *           call's time, and that of 12 to 20 bytes of traffic for an entry or a
 *           zero: 2 % more at 4096³ in float.
 *
 * For M = N = K = 4096 in float an H200 should need 2.7 ms for the dense product,
 * and for the lists, at 4/5 of the rate that the kernels' heads count, in ms:
 *
 *	kept       0.5   0.4   0.3   0.25  0.2   0.1   0.05  0.02
 *	multiply   3.2   3.0   2.6   2.4   2.1   1.25  0.7   0.4
 *	sample     4.5   4.2   3.8   3.3   2.9   1.7   1.1   0.9
 *
 * of which 0.1 prepare. For bfloat16 tensor cores make the dense product in 0.2 ms,
 * which the lists reach where a fiftieth to a hundredth is kept. These are
 * predictions, not measurements: no GPU has run this yet. */
#include "blocks.cuh"
#include "columns.cuh"
#include "sparse.cuh"

namespace {

/* The lists are chosen where at most 1/x of the entries is kept, x as predicted. */
const double LISTS_MULTIPLY = 3, LISTS_SAMPLE = 5, LISTS_BF16 = 80;
/* And they are short, for sparse_multiply, where at most this part is. */
const double LISTS_SHORT = 32;

bool sparser(const csr &w, double x) { return w.nnz * x <= static_cast<double>(w.rows) * w.cols; }

/* The activations of a product with lists. */
template <typename E> struct operands {
	sparse_lists lists;
	E *inputs, *outputs; /* by tiles */
};

/* Lays lists and tiles of activations out in the workspace; those of the outputs
 * where they are operands too. */
template <typename E>
int32_t lay_out(dynmo_cuda *k, operands<E> *o, const csr &w, int by_column, int32_t n, int tokens, bool sampled)
{
	auto take_all = [&](parcels work) {
		o->lists = sparse_lists_at(&work, w, by_column);
		o->inputs = work.take<E>(tiled_elements(n, o->lists.inputs, tokens));
		if (sampled) o->outputs = work.take<E>(tiled_elements(n, o->lists.outputs, tokens));
		return work.used;
	};
	void *base;
	if (int32_t status = workspace(k, take_all({}), &base)) return status;
	take_all({reinterpret_cast<uintptr_t>(base), 0});
	return 0;
}

/* out (n, outputs) = x·Wᵀ + bias, or x·W by_column. */
template <typename E>
int32_t multiply(dynmo_cuda *k, void *stream, void *out, const void *x, const csr &w, const void *values,
	const void *bias, int32_t n, int by_column)
{
	operands<E> o = {};
	int few = k->type == DYNMO_CUDA_F32 && sparser(w, LISTS_SHORT);
	int tokens = few ? tile_tokens<4> : tile_tokens<8>;
	if (int32_t status = lay_out(k, &o, w, by_column, n, tokens, false)) return status;
	if (int32_t status = list_values(stream, o.lists, w, static_cast<const E *>(values))) return status;
	if (int32_t status = tile_rows(stream, o.inputs, static_cast<const E *>(x), n, o.lists.inputs, tokens)) return status;
	return sparse_multiply(stream, static_cast<E *>(out), o.inputs, o.lists, static_cast<const E *>(bias), n, few);
}

template <typename E>
int32_t sample(dynmo_cuda *k, void *stream, float *dvalues, const void *dout, const void *inp, const csr &w, int32_t n)
{
	const int tokens = tile_tokens<8>;
	operands<E> o = {};
	if (int32_t status = lay_out(k, &o, w, 0, n, tokens, true)) return status;
	if (int32_t status = list_entries(stream, o.lists, w)) return status;
	if (int32_t status = tile_rows(stream, o.inputs, static_cast<const E *>(inp), n, w.cols, tokens)) return status;
	if (int32_t status = tile_rows(stream, o.outputs, static_cast<const E *>(dout), n, w.rows, tokens)) return status;
	return sparse_sample(stream, dvalues, o.outputs, o.inputs, o.lists, n);
}

/* write_dense sets *dense to the matrix with its zeros, in the workspace: the
 * dense products have one of their own. */
template <typename E>
int32_t write_dense(dynmo_cuda *k, void *stream, void **dense, const csr &w, const void *values)
{
	if (int32_t status = workspace(k, sizeof(E) * w.rows * w.cols, dense)) return status;
	return scatter_dense(stream, static_cast<E *>(*dense), w, static_cast<const E *>(values));
}

int32_t sample_dense(dynmo_cuda *k, void *stream, float *dvalues, const void *dout, const void *inp, const csr &w,
	int32_t n)
{
	void *dense;
	size_t bytes = sizeof(float) * w.rows * w.cols;
	if (int32_t status = workspace(k, bytes, &dense)) return status;
	cudaError_t cleared = cudaMemsetAsync(dense, 0, bytes, static_cast<cudaStream_t>(stream));
	if (cleared != cudaSuccess) return static_cast<int32_t>(cleared);
	float *sums = static_cast<float *>(dense);
	if (int32_t status = dynmo_cuda_matmul_backward_weight(k, stream, sums, nullptr, dout, inp, n, w.cols, w.rows))
		return status;
	return gather_dense(stream, dvalues, sums, w);
}

template <typename E>
int32_t sum_columns(dynmo_cuda *k, void *stream, float *sums, const void *x, int32_t n, int32_t o)
{
	return column_sums(k, stream, sums, static_cast<const E *>(x), n, o);
}

} // namespace

int32_t dynmo_cuda_spmm_forward(dynmo_cuda *k, void *stream, void *out, const void *inp, const int32_t *row,
	const int32_t *col, const void *values, const void *bias, int32_t n, int32_t rows, int32_t cols, int32_t nnz, int32_t blocks)
{
	csr w = {row, col, rows, cols, nnz};
	void *dense;
	if (n == 0 || rows == 0) return 0;
	if (blocks) return blocks_multiply(k, stream, BLOCKS_FORWARD, {out, inp, values, bias, w, n, nullptr, nullptr});
	if (sparser(w, k->type == DYNMO_CUDA_BF16 ? LISTS_BF16 : LISTS_MULTIPLY))
		return BY_TYPE(k, multiply, k, stream, out, inp, w, values, bias, n, 0);
	if (int32_t status = BY_TYPE(k, write_dense, k, stream, &dense, w, values)) return status;
	return dynmo_cuda_matmul_forward(k, stream, out, inp, dense, bias, nullptr, n, cols, rows);
}

int32_t dynmo_cuda_spmm_backward_input(dynmo_cuda *k, void *stream, void *dinp, const void *dout, const int32_t *row,
	const int32_t *col, const void *values, int32_t n, int32_t rows, int32_t cols, int32_t nnz, int32_t blocks)
{
	csr w = {row, col, rows, cols, nnz};
	void *dense;
	if (n == 0 || cols == 0) return 0;
	if (blocks) return blocks_multiply(k, stream, BLOCKS_INPUT, {dinp, dout, values, nullptr, w, n, nullptr, nullptr});
	if (sparser(w, k->type == DYNMO_CUDA_BF16 ? LISTS_BF16 : LISTS_MULTIPLY))
		return BY_TYPE(k, multiply, k, stream, dinp, dout, w, values, nullptr, n, 1);
	if (int32_t status = BY_TYPE(k, write_dense, k, stream, &dense, w, values)) return status;
	return dynmo_cuda_matmul_backward_input(k, stream, dinp, dout, dense, n, cols, rows);
}

int32_t dynmo_cuda_sddmm(dynmo_cuda *k, void *stream, float *dvalues, float *dbias, const void *dout, const void *inp,
	const int32_t *row, const int32_t *col, int32_t n, int32_t rows, int32_t cols, int32_t nnz, int32_t blocks)
{
	csr w = {row, col, rows, cols, nnz};
	if (n == 0) return 0;
	if (dbias)
		if (int32_t status = BY_TYPE(k, sum_columns, k, stream, dbias, dout, n, rows)) return status;
	if (nnz == 0) return 0;
	if (blocks) return blocks_multiply(k, stream, BLOCKS_SAMPLE, {dvalues, inp, dout, nullptr, w, n, nullptr, nullptr});
	if (sparser(w, k->type == DYNMO_CUDA_BF16 ? LISTS_BF16 : LISTS_SAMPLE))
		return BY_TYPE(k, sample, k, stream, dvalues, dout, inp, w, n);
	return sample_dense(k, stream, dvalues, dout, inp, w, n);
}
