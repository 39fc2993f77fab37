/* The lists of a sparse matrix, and its dense twin. A matrix (4096, 4096) with a tenth kept
 * has 1.7 M entries, which are read twice: 20 MB. Lists of groups write 1.4 M places, 29 MB,
 * short lists 15 MB. Most of that stays in the L2 cache for the product. */
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
		group = row / GROUP;
		slot = row % GROUP;
		word = static_cast<int64_t>(group) * w.words + col / 32;
		bit = col % 32;
	}

	/* index returns the place's number among all slots, once the lists are written. */
	__device__ int64_t index(const sparse_lists &w) const
	{
		int at = w.before[word] + __popc(w.kept[word] & ((1u << bit) - 1));
		return (group * w.stride + at) * GROUP + slot;
	}
};

const int CHUNK_WORDS = CHUNK_INPUTS / 32;

/* Reads the bits of an output's chunk. */
__device__ __forceinline__ void read_chunk(uint32_t (&words)[CHUNK_WORDS], const short_lists &w, int output, int chunk)
{
	const uint4 *kept = reinterpret_cast<const uint4 *>(w.kept);
	int64_t at = (static_cast<int64_t>(output) * w.chunks + chunk) * (CHUNK_WORDS / 4);
#pragma unroll
	for (int i = 0; i < CHUNK_WORDS / 4; i++) {
		uint4 four = kept[at + i];
		words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
	}
}

/* The work on each entry e, at (row, col). */
struct mark {
	sparse_lists w;
	__device__ void operator()(int row, int col, int) const
	{
		list_place place(w, row, col);
		atomicOr(w.kept + place.word, 1u << place.bit);
	}
};

struct put_entry {
	sparse_lists w;
	__device__ void operator()(int row, int col, int e) const
	{
		w.slots[list_place(w, row, col).index(w)] = e;
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
__global__ void __launch_bounds__(32 * WARPS) write_lists(sparse_lists w)
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
	int4 *slots = reinterpret_cast<int4 *>(w.slots) + list;
	for (int e = lane; e < length; e += 32)
		slots[e] = make_int4(-1, -1, -1, -1);
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

/* Sets a bit for each entry of short lists. */
struct mark_short {
	short_lists w;
	__device__ void operator()(int row, int col, int) const
	{
		int output = w.by_column ? col : row, input = w.by_column ? row : col;
		int64_t chunk = static_cast<int64_t>(output) * w.chunks + input / CHUNK_INPUTS;
		atomicOr(w.kept + chunk * CHUNK_WORDS + input % CHUNK_INPUTS / 32, 1u << input % 32);
	}
};

/* Writes an entry into its short list. If their number is odd, the last entry also fills up the last pair. */
struct put_short {
	short_lists w;
	const float *values;
	__device__ void operator()(int row, int col, int e) const
	{
		int output = w.by_column ? col : row, input = w.by_column ? row : col;
		int group = output / WARP_OUTPUTS, chunk = input / CHUNK_INPUTS, place = input % CHUNK_INPUTS;
		uint32_t words[CHUNK_WORDS];
		read_chunk(words, w, output, chunk);
		int before = 0, count = 0;
#pragma unroll
		for (int j = 0; j < CHUNK_WORDS; j++) {
			uint32_t lower = j < place / 32 ? 0xffffffff : j == place / 32 ? (1u << place % 32) - 1 : 0;
			before += __popc(words[j] & lower);
			count += __popc(words[j]);
		}
		int64_t list = (static_cast<int64_t>(group) * w.chunks + chunk) * WARP_OUTPUTS + output % WARP_OUTPUTS;
		uint2 *entries = w.entries + 2 * (static_cast<int64_t>(w.base[group]) + w.first[list]);
		unsigned at = place * sizeof(float);
		entries[before] = make_uint2(at, __float_as_uint(values[e]));
		if (before + 1 == count && count % 2) entries[count] = make_uint2(at, 0);
	}
};

/* A block finds the lengths and the places of a group's short lists. */
__global__ void __launch_bounds__(32 * WARPS) place_short(short_lists w)
{
	SHARED(int, sums, [WARPS]);
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32, lists = w.chunks * WARP_OUTPUTS, all = 0;
	for (int begin = 0; begin < lists; begin += 32 * WARPS) {
		int list = begin + threadIdx.x, pairs = 0;
		if (list < lists) {
			uint32_t words[CHUNK_WORDS];
			read_chunk(words, w, blockIdx.x * WARP_OUTPUTS + list % WARP_OUTPUTS, list / WARP_OUTPUTS);
			for (uint32_t word : words)
				pairs += __popc(word);
			pairs = (pairs + 1) / 2;
		}
		int sum = pairs, before = all;
#pragma unroll
		for (int apart = 1; apart < 32; apart *= 2) {
			int lower = __shfl_up_sync(0xffffffff, sum, apart);
			if (lane >= apart) sum += lower;
		}
		if (lane == 31) sums[warp] = sum;
		__syncthreads();
		for (int i = 0; i < WARPS; i++) {
			if (i < warp) before += sums[i];
			all += sums[i];
		}
		__syncthreads();
		if (list < lists) {
			int64_t at = static_cast<int64_t>(blockIdx.x) * lists + list;
			w.first[at] = before + sum - pairs;
			w.length[at] = static_cast<uint8_t>(pairs);
		}
	}
	if (threadIdx.x == 0) w.base[blockIdx.x] = atomicAdd(w.taken, all);
}

} // namespace

sparse_lists sparse_lists_at(parcels *work, const csr &w)
{
	sparse_lists lists = {};
	lists.outputs = w.rows;
	lists.inputs = w.cols;
	lists.groups = static_cast<int32_t>(parts(lists.outputs, GROUP));
	lists.strips = static_cast<int32_t>(parts(lists.groups, STRIP));
	lists.words = static_cast<int32_t>(parts(lists.inputs, 32));
	lists.stride = parts(lists.inputs, CHUNK) * CHUNK;
	lists.kept = work->take<uint32_t>(static_cast<int64_t>(lists.groups) * lists.words);
	lists.before = work->take<int32_t>(static_cast<int64_t>(lists.groups) * lists.words);
	lists.length = work->take<int32_t>(lists.groups);
	lists.order = work->take<int32_t>(lists.strips);
	lists.input = work->take<int32_t>(lists.groups * lists.stride);
	lists.slots = work->take<int32_t>(lists.groups * lists.stride * GROUP);
	return lists;
}

short_lists short_lists_at(parcels *work, const csr &w, int by_column)
{
	short_lists lists = {};
	lists.outputs = by_column ? w.cols : w.rows;
	lists.inputs = by_column ? w.rows : w.cols;
	lists.by_column = by_column;
	lists.groups = static_cast<int32_t>(parts(lists.outputs, WARP_OUTPUTS));
	lists.chunks = static_cast<int32_t>(parts(lists.inputs, CHUNK_INPUTS));
	int64_t count = static_cast<int64_t>(lists.groups) * WARP_OUTPUTS * lists.chunks;
	lists.kept = work->take<uint32_t>(count * CHUNK_WORDS + 1);
	lists.taken = reinterpret_cast<int32_t *>(lists.kept + count * CHUNK_WORDS);
	lists.base = work->take<int32_t>(lists.groups);
	lists.first = work->take<int32_t>(count);
	lists.length = work->take<uint8_t>(count);
	lists.entries = work->take<uint2>(w.nnz + count + 4 * 32); /* a warp reads up to 64 pairs after its last */
	return lists;
}

int32_t list_short(void *stream, const short_lists &lists, const csr &w, const float *values)
{
	size_t bytes = reinterpret_cast<uintptr_t>(lists.taken + 1) - reinterpret_cast<uintptr_t>(lists.kept);
	cudaError_t status = cudaMemsetAsync(lists.kept, 0, bytes, static_cast<cudaStream_t>(stream));
	if (status != cudaSuccess) return static_cast<int32_t>(status);
	if (int32_t failed = for_entries(stream, w, mark_short{lists})) return failed;
	LAUNCH(place_short, lists.groups, 32 * WARPS, 0, stream, lists);
	if (int32_t failed = launched()) return failed;
	return for_entries(stream, w, put_short{lists, values});
}

int32_t list_entries(void *stream, const sparse_lists &lists, const csr &w)
{
	size_t bytes = sizeof(uint32_t) * lists.groups * lists.words;
	cudaError_t status = cudaMemsetAsync(lists.kept, 0, bytes, static_cast<cudaStream_t>(stream));
	if (status != cudaSuccess) return static_cast<int32_t>(status);
	if (int32_t failed = for_entries(stream, w, mark{lists})) return failed;
	LAUNCH(write_lists, dim3(parts(lists.groups, WARPS)), dim3(32, WARPS), 0, stream, lists);
	LAUNCH(order_strips, dim3(parts(lists.strips, WARPS)), dim3(32, WARPS), 0, stream, lists);
	if (int32_t failed = launched()) return failed;
	return for_entries(stream, w, put_entry{lists});
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

template int32_t scatter_dense<float>(void *, float *, const csr &, const float *);
template int32_t scatter_dense<bf16>(void *, bf16 *, const csr &, const bf16 *);
