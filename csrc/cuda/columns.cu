/* The sums of a matrix's columns. */
#include "columns.cuh"

namespace {

template <typename E, bool VECTOR> struct element {
	static const int N = width<E>;
	const E *x;

	__device__ __forceinline__ void add(float (&sum)[1][N], int row, int at, int c) const
	{
		pack<E> p = read<VECTOR, N>(x + static_cast<int64_t>(row) * c, at, c);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum[0][j] += p[j];
	}
};

} // namespace

template <typename E>
int32_t column_sums(dynmo_cuda *k, void *stream, float *sums, const E *x, int32_t n, int32_t o, size_t offset)
{
	void *work;
	if (int32_t status = workspace(k, offset + column_sums_bytes(n, o), &work)) return status;
	column_places<1> place = {{sums}, reinterpret_cast<float *>(static_cast<char *>(work) + offset)};
	if (rows_aligned<E>(o, x)) return add_columns<E>(stream, place, element<E, true>{x}, n, o);
	return add_columns<E>(stream, place, element<E, false>{x}, n, o);
}

template int32_t column_sums<float>(dynmo_cuda *, void *, float *, const float *, int32_t, int32_t, size_t);
template int32_t column_sums<bf16>(dynmo_cuda *, void *, float *, const bf16 *, int32_t, int32_t, size_t);
