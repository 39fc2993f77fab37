/* spmm_forward by cuSPARSE, to compare with: its generic product, opened when it is
 * first asked for, so that nothing else needs the library.
 *
 * Rows of tokens are columns as cuSPARSE has them: out (rows, n) = W·inp with inp
 * (cols, n), both column-major, by its first algorithm for compressed rows. The
 * preparation that it offers for patterns that stay is left out: a call of ours
 * keeps nothing of a pattern either. */
#include "device.cuh"

#ifdef DYNMO_EMULATE

void rival_close(struct rival *) {}

int32_t dynmo_cuda_spmm_cusparse(dynmo_cuda *, void *, void *, const void *, const int32_t *, const int32_t *,
	const void *, int32_t, int32_t, int32_t, int32_t)
{
	return DYNMO_CUDA_ABSENT;
}

#else

#include <cusparse.h>
#include <dlfcn.h>
#include <new>

enum { RIVAL_STATUS = 20000 }; /* cuSPARSE's statuses stand from here on in those of the calls */

#define RIVAL_CALLS(X)                                                                                                 \
	X(cusparseCreate) X(cusparseDestroy) X(cusparseSetStream) X(cusparseCreateCsr) X(cusparseDestroySpMat)             \
	X(cusparseCreateDnMat) X(cusparseDestroyDnMat) X(cusparseSpMM_bufferSize) X(cusparseSpMM)

/* The library's functions, its handle and its buffer, which grows. */
struct rival {
	void *library;
	cusparseHandle_t handle;
	void *buffer;
	size_t buffer_bytes;
#define RIVAL_MEMBER(name) decltype(&::name) name;
	RIVAL_CALLS(RIVAL_MEMBER)
#undef RIVAL_MEMBER
};

namespace {

int32_t status_of(cusparseStatus_t status) { return status == CUSPARSE_STATUS_SUCCESS ? 0 : RIVAL_STATUS + status; }

/* The operands of a product as cuSPARSE describes them. */
struct description {
	cusparseSpMatDescr_t w;
	cusparseDnMatDescr_t inp, out;
};

/* The version that this was built with, or the other: both know these calls. */
void *open_library()
{
	const bool later = CUSPARSE_VER_MAJOR >= 12;
	const char *names[] = {later ? "libcusparse.so.12" : "libcusparse.so.11",
		later ? "libcusparse.so.11" : "libcusparse.so.12"};
	for (const char *name : names)
		if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
	return nullptr;
}

int32_t find_calls(struct rival *r)
{
	r->library = open_library();
	if (!r->library) return DYNMO_CUDA_ABSENT;
#define RIVAL_FIND(name)                                                                                               \
	r->name = reinterpret_cast<decltype(r->name)>(dlsym(r->library, #name));                                           \
	if (!r->name) return DYNMO_CUDA_ABSENT;
	RIVAL_CALLS(RIVAL_FIND)
#undef RIVAL_FIND
	return status_of(r->cusparseCreate(&r->handle));
}

int32_t describe(struct rival *r, description *d, cudaDataType type, void *out, const void *inp, const int32_t *row,
	const int32_t *col, const void *values, int32_t n, int32_t rows, int32_t cols, int32_t nnz)
{
	int32_t status = status_of(r->cusparseCreateCsr(&d->w, rows, cols, nnz, const_cast<int32_t *>(row),
		const_cast<int32_t *>(col), const_cast<void *>(values), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
		CUSPARSE_INDEX_BASE_ZERO, type));
	if (!status)
		status = status_of(
			r->cusparseCreateDnMat(&d->inp, cols, n, cols, const_cast<void *>(inp), type, CUSPARSE_ORDER_COL));
	if (!status) status = status_of(r->cusparseCreateDnMat(&d->out, rows, n, rows, out, type, CUSPARSE_ORDER_COL));
	return status;
}

void forget(struct rival *r, description *d)
{
	if (d->w) r->cusparseDestroySpMat(d->w);
	if (d->inp) r->cusparseDestroyDnMat(d->inp);
	if (d->out) r->cusparseDestroyDnMat(d->out);
}

int32_t grow(struct rival *r, size_t bytes)
{
	if (bytes <= r->buffer_bytes) return 0;
	cudaError_t status = cudaFree(r->buffer);
	r->buffer = nullptr;
	r->buffer_bytes = 0;
	if (status == cudaSuccess) status = cudaMalloc(&r->buffer, bytes);
	if (status == cudaSuccess) r->buffer_bytes = bytes;
	return static_cast<int32_t>(status);
}

int32_t multiply(struct rival *r, void *stream, const description &d)
{
	const float one = 1, zero = 0;
	const cusparseOperation_t plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
	const cusparseSpMMAlg_t algorithm = CUSPARSE_SPMM_CSR_ALG1;
	size_t bytes = 0;
	if (int32_t status = status_of(r->cusparseSetStream(r->handle, static_cast<cudaStream_t>(stream)))) return status;
	if (int32_t status = status_of(r->cusparseSpMM_bufferSize(
			r->handle, plain, plain, &one, d.w, d.inp, &zero, d.out, CUDA_R_32F, algorithm, &bytes)))
		return status;
	if (int32_t status = grow(r, bytes)) return status;
	return status_of(r->cusparseSpMM(
		r->handle, plain, plain, &one, d.w, d.inp, &zero, d.out, CUDA_R_32F, algorithm, r->buffer));
}

} // namespace

void rival_close(struct rival *r)
{
	if (!r) return;
	if (r->handle) r->cusparseDestroy(r->handle);
	cudaFree(r->buffer);
	if (r->library) dlclose(r->library);
	delete r;
}

int32_t dynmo_cuda_spmm_cusparse(dynmo_cuda *k, void *stream, void *out, const void *inp, const int32_t *row,
	const int32_t *col, const void *values, int32_t n, int32_t rows, int32_t cols, int32_t nnz)
{
	if (!k->rival) {
		struct rival *r = new (std::nothrow) rival();
		if (!r) return static_cast<int32_t>(cudaErrorMemoryAllocation);
		if (int32_t status = find_calls(r)) {
			rival_close(r);
			return status;
		}
		k->rival = r;
	}
	cudaDataType type = k->type == DYNMO_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
	description d = {};
	int32_t status = describe(k->rival, &d, type, out, inp, row, col, values, n, rows, cols, nnz);
	if (!status) status = multiply(k->rival, stream, d);
	forget(k->rival, &d);
	return status;
}

#endif
