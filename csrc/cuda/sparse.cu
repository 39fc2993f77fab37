/* The calls on sparse matrices. Whole blocks go by blocks.cu. Other entries go one of three
 * ways, chosen by the matrix's shape and number of entries:
 *
 *   short   float products: a list for each output, sparse_short.cu
 *   lists   gradients of entries: activations by tiles, lists of four outputs each,
 *           sparse_sample.cu. The time falls with the entries.
 *   dense   the matrix written out with its zeros, and a dense product. The time is
 *           that of a dense call and of 12 to 20 bytes of traffic for each entry or
 *           zero: 2 % more at 4096³ in float.
 *
 * For M = N = K = 4096 in float an H100 took, in ms:
 *
 *	kept                                0.25   0.2    0.1    0.05   0.02
 *	product, short way, lists included  3.70   3.00   1.62   0.93   0.53
 *	product, cuSPARSE, prepared         5.52   3.62   2.08   0.93   0.46
 *	cuSPARSE's preparation              0.19   0.17   0.17   0.15   0.15
 *	product, dense                      2.71   2.71   2.71   2.71   2.71
 *	gradient, lists                                   2.37   1.42   0.83
 *	gradient, cuSPARSE, prepared        4.18   4.18   2.85   1.58   0.64
 *	gradient, dense                     2.67   2.67   2.67   2.67   2.67
 *
 * In bfloat16 the dense product takes 0.16 ms and is always taken. */
#include "blocks.cuh"
#include "columns.cuh"
#include "sparse.cuh"

namespace {

/* The short way is chosen where at most 1/SHORT of the entries is kept. Lists are chosen where
 * at most 1/LISTS_SAMPLE is. Both are from the table above; LISTS_BF16 is a prediction. GPUs
 * with less shared memory than an A100 or H100 have no short way. */
const double SHORT = 6, LISTS_SAMPLE = 8, LISTS_BF16 = 80;

bool sparser(const csr &w, double x) { return w.nnz * x <= static_cast<double>(w.rows) * w.cols; }

/* is_short says whether a product takes the short way. */
bool is_short(const dynmo_cuda *k, const csr &w)
{
	return k->type == DYNMO_CUDA_F32 && sparser(w, SHORT) && k->shared_bytes >= SHORT_SHARED;
}

/* out (n, outputs) = x·Wᵀ + bias, or x·W by_column. */
int32_t multiply_short(dynmo_cuda *k, void *stream, void *out, const void *x, const csr &w, const void *values,
	const void *bias, int32_t n, int by_column)
{
	parcels room = {};
	void *base;
	short_lists_at(&room, w, by_column);
	if (int32_t status = workspace(k, room.used, &base)) return status;
	room = {reinterpret_cast<uintptr_t>(base), 0};
	short_lists lists = short_lists_at(&room, w, by_column);
	if (int32_t status = list_short(stream, lists, w, static_cast<const float *>(values))) return status;
	return short_multiply(stream, static_cast<float *>(out), static_cast<const float *>(x), lists,
		static_cast<const float *>(bias), n);
}

template <typename E>
int32_t sample(dynmo_cuda *k, void *stream, float *dvalues, const void *dout, const void *inp, const csr &w, int32_t n)
{
	const int tokens = tile_tokens<8>;
	sparse_lists lists;
	E *inputs, *outputs; /* by tiles */
	auto lay_out = [&](parcels work) {
		lists = sparse_lists_at(&work, w);
		inputs = work.take<E>(tiled_elements(n, w.cols, tokens));
		outputs = work.take<E>(tiled_elements(n, w.rows, tokens));
		return work.used;
	};
	void *base;
	if (int32_t status = workspace(k, lay_out({}), &base)) return status;
	lay_out({reinterpret_cast<uintptr_t>(base), 0});
	if (int32_t status = list_entries(stream, lists, w)) return status;
	if (int32_t status = tile_rows(stream, inputs, static_cast<const E *>(inp), n, w.cols, tokens)) return status;
	if (int32_t status = tile_rows(stream, outputs, static_cast<const E *>(dout), n, w.rows, tokens)) return status;
	return sparse_sample(stream, dvalues, outputs, inputs, lists, n);
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
	if (is_short(k, w)) return multiply_short(k, stream, out, inp, w, values, bias, n, 0);
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
	if (is_short(k, w)) return multiply_short(k, stream, dinp, dout, w, values, nullptr, n, 1);
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
