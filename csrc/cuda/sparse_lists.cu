/* The lists of a sparse matrix, and its dense twin. For a matrix (4096, 4096)
 * of which a tenth is kept: 1.7 M entries are read twice, 20 MB; 1.4 M list
 * places written, 29 MB, most of which stay in the L2 cache for the product. */
#include "reduce.cuh"
#include "sparse.cuh"

namespace {

const int WARPS = 8;

/* Where an entry is in the lists. */
struct list_place {
	int64_t word;
	int32_t bit, slot; /* of the word; of the group */
	int32_t group;

	__device__ list_place(const sparse_lists &w, int row, int col)
	{
		int output = w.by_column ? col : row, input = w.by_column ? row : col;
		group = output / GROUP;
		slot = output % GROUP;
		word = static_cast<int64_t>(group) * w.words + input / 32;
		bit = input % 32;
	}

	/* index returns the place's number among all slots, once the lists are written. */
	__device__ int64_t index(const sparse_lists &w) const
	{
		int at = w.before[word] + __popc(w.kept[word] & ((1u << bit) - 1));
		return (group * w.stride + at) * GROUP + slot;
	}
};

/* The work on each entry e, at (row, col). */
struct mark {
	sparse_lists w;
	__device__ void operator()(int row, int col, int) const
	{
		list_place place(w, row, col);
		atomicOr(w.kept + place.word, 1u << place.bit);
	}
};

template <typename E> struct put_value {
	sparse_lists w;
	const E *values;
	__device__ void operator()(int row, int col, int e) const
	{
		static_cast<float *>(w.slots)[list_place(w, row, col).index(w)] = wide(values[e]);
	}
};

struct put_entry {
	sparse_lists w;
	__device__ void operator()(int row, int col, int e) const
	{
		static_cast<int32_t *>(w.slots)[list_place(w, row, col).index(w)] = e;
	}
};

template <typename E> struct put_dense {
	E *dense;
	const E *values;
	int64_t cols;
	__device__ void operator()(int row, int col, int e) const { dense[row * cols + col] = values[e]; }
};

struct add_dense {
	float *dvalues;
	const float *dense;
	int64_t cols;
	__device__ void operator()(int row, int col, int e) const { dvalues[e] += dense[row * cols + col]; }
};

/* A warp does the entries of a row. */
template <typename F> __global__ void __launch_bounds__(32 * WARPS) each_entry(csr w, F f)
{
	int row = blockIdx.x * WARPS + threadIdx.y;
	if (row >= w.rows) return;
	int end = w.row[row + 1];
#pragma unroll 4
	for (int e = w.row[row] + threadIdx.x; e < end; e += 32)
		f(row, w.col[e], e);
}

template <typename F> int32_t for_entries(void *stream, const csr &w, const F &f)
{
	if (w.nnz == 0) return 0;
	LAUNCH(each_entry<F>, dim3(parts(w.rows, WARPS)), dim3(32, WARPS), 0, stream, w, f);
	return launched();
}

/* A warp writes the list of a group from its bits: a lane the input of its bit,
 * where that is set. The last input fills the list up: its slots hold nothing. */
__global__ void __launch_bounds__(32 * WARPS) write_lists(sparse_lists w, int nothing)
{
	int group = blockIdx.x * WARPS + threadIdx.y, lane = threadIdx.x;
	if (group >= w.groups) return;
	int64_t words = static_cast<int64_t>(group) * w.words, list = group * w.stride;
	int at = 0, last = 0;
	for (int first = 0; first < w.words; first += 32) {
		uint32_t mine = first + lane < w.words ? w.kept[words + first + lane] : 0;
		for (int j = 0; j < min(32, w.words - first); j++) {
			uint32_t bits = __shfl_sync(0xffffffff, mine, j);
			int input = (first + j) * 32;
			if (lane == 0) w.before[words + first + j] = at;
			if (bits >> lane & 1) w.input[list + at + __popc(bits & ((1u << lane) - 1))] = input + lane;
			at += __popc(bits);
			if (bits) last = input + 31 - __clz(bits);
		}
	}
	int length = (at + CHUNK - 1) / CHUNK * CHUNK;
	if (at + lane < length) w.input[list + at + lane] = last;
	int4 *slots = static_cast<int4 *>(w.slots) + list;
	for (int e = lane; e < length; e += 32)
		slots[e] = make_int4(nothing, nothing, nothing, nothing);
	if (lane == 0) w.length[group] = length;
}

/* strip_length returns the entries of a strip's lists. */
__device__ __forceinline__ int strip_length(const sparse_lists &w, int strip)
{
	int length = 0;
	for (int g = strip * STRIP; g < min((strip + 1) * STRIP, w.groups); g++)
		length += w.length[g];
	return length;
}

/* A warp finds the place of a strip: the number of strips that are longer, or
 * as long and of lower number. */
__global__ void __launch_bounds__(32 * WARPS) order_strips(sparse_lists w)
{
	int strip = blockIdx.x * WARPS + threadIdx.y;
	if (strip >= w.strips) return;
	int length = strip_length(w, strip), ahead = 0;
	for (int s = threadIdx.x; s < w.strips; s += 32) {
		int other = strip_length(w, s);
		ahead += other > length || (other == length && s < strip);
	}
	ahead = warp_reduce(ahead, plus());
	if (threadIdx.x == 0) w.order[ahead] = strip;
}

template <typename F> int32_t list(void *stream, const sparse_lists &w, const csr &matrix, int nothing, const F &put)
{
	size_t bytes = sizeof(uint32_t) * w.groups * w.words;
	cudaError_t status = cudaMemsetAsync(w.kept, 0, bytes, static_cast<cudaStream_t>(stream));
	if (status != cudaSuccess) return static_cast<int32_t>(status);
	if (int32_t failed = for_entries(stream, matrix, mark{w})) return failed;
	LAUNCH(write_lists, dim3(parts(w.groups, WARPS)), dim3(32, WARPS), 0, stream, w, nothing);
	LAUNCH(order_strips, dim3(parts(w.strips, WARPS)), dim3(32, WARPS), 0, stream, w);
	if (int32_t failed = launched()) return failed;
	return for_entries(stream, matrix, put);
}

} // namespace

sparse_lists sparse_lists_at(parcels *work, const csr &w, int by_column)
{
	sparse_lists lists = {};
	lists.outputs = by_column ? w.cols : w.rows;
	lists.inputs = by_column ? w.rows : w.cols;
	lists.by_column = by_column;
	lists.groups = static_cast<int32_t>(parts(lists.outputs, GROUP));
	lists.strips = static_cast<int32_t>(parts(lists.groups, STRIP));
	lists.words = static_cast<int32_t>(parts(lists.inputs, 32));
	lists.stride = parts(lists.inputs, CHUNK) * CHUNK;
	lists.kept = work->take<uint32_t>(static_cast<int64_t>(lists.groups) * lists.words);
	lists.before = work->take<int32_t>(static_cast<int64_t>(lists.groups) * lists.words);
	lists.length = work->take<int32_t>(lists.groups);
	lists.order = work->take<int32_t>(lists.strips);
	lists.input = work->take<int32_t>(lists.groups * lists.stride);
	lists.slots = work->take<int4>(lists.groups * lists.stride);
	return lists;
}

template <typename E> int32_t list_values(void *stream, const sparse_lists &lists, const csr &w, const E *values)
{
	return list(stream, lists, w, 0, put_value<E>{lists, values});
}

int32_t list_entries(void *stream, const sparse_lists &lists, const csr &w)
{
	return list(stream, lists, w, -1, put_entry{lists});
}

template <typename E> int32_t scatter_dense(void *stream, E *dense, const csr &w, const E *values)
{
	size_t bytes = sizeof(E) * w.rows * w.cols;
	cudaError_t status = cudaMemsetAsync(dense, 0, bytes, static_cast<cudaStream_t>(stream));
	if (status != cudaSuccess) return static_cast<int32_t>(status);
	return for_entries(stream, w, put_dense<E>{dense, values, w.cols});
}

int32_t gather_dense(void *stream, float *dvalues, const float *dense, const csr &w)
{
	return for_entries(stream, w, add_dense{dvalues, dense, w.cols});
}

template int32_t list_values<float>(void *, const sparse_lists &, const csr &, const float *);
template int32_t list_values<bf16>(void *, const sparse_lists &, const csr &, const bf16 *);
template int32_t scatter_dense<float>(void *, float *, const csr &, const float *);
template int32_t scatter_dense<bf16>(void *, bf16 *, const csr &, const bf16 *);
