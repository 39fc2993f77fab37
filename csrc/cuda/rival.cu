/* The slots of rivals, and cuSPARSE's products. The library is opened at its first use, so
 * that nothing else needs it.
 *
 * SpMM is out (rows, n) = W·inp (cols, n). Its dense operands lie by columns, as activations
 * do here, or by rows. cuSPARSE prefers rows, but no activations here lie so. SDDMM is
 * values += (doutᵀ·inp) at the entries of W, with operands likewise. prepare does all
 * preprocessing of a pattern. */
#include "rival.cuh"

#include <memory>

struct rivals {
	std::unique_ptr<rival> slots[DYNMO_CUDA_RIVALS];
};

void rivals_close(struct rivals *r) { delete r; }

int32_t dynmo_cuda_rival_prepare(dynmo_cuda *k, void *stream, int32_t slot, const dynmo_cuda_rival *p)
{
	if (!k->rivals) k->rivals = new rivals();
	std::unique_ptr<rival> &at = k->rivals->slots[slot];
	at.reset(p->product == DYNMO_CUDA_RIVAL_TF32 ? new_dense_rival() : new_sparse_rival());
	if (!at) return DYNMO_CUDA_ABSENT;
	int32_t status = at->prepare(k, stream, p);
	if (status) at.reset();
	return status;
}

int32_t dynmo_cuda_rival_run(dynmo_cuda *k, void *stream, int32_t slot)
{
	rival *r = k->rivals ? k->rivals->slots[slot].get() : nullptr;
	return r ? r->run(stream) : DYNMO_CUDA_SHAPE;
}

int32_t dynmo_cuda_rival_forget(dynmo_cuda *k)
{
	rivals_close(k->rivals);
	k->rivals = nullptr;
	return 0;
}

#ifdef DYNMO_EMULATE

struct rival *new_sparse_rival() { return nullptr; }

#else

#include <cusparse.h>
#include <dlfcn.h>

enum { RIVAL_STATUS = 20000 }; /* cuSPARSE's statuses stand from here on in those of the calls */

#define RIVAL_CALLS(X)                                                                                                 \
	X(cusparseCreate) X(cusparseDestroy) X(cusparseSetStream) X(cusparseCreateCsr) X(cusparseDestroySpMat)             \
	X(cusparseCreateDnMat) X(cusparseDestroyDnMat) X(cusparseSpMM_bufferSize) X(cusparseSpMM_preprocess)               \
	X(cusparseSpMM) X(cusparseSDDMM_bufferSize) X(cusparseSDDMM_preprocess) X(cusparseSDDMM)

namespace {

/* TRY(call) ends the function with the status of a call of cuSPARSE that failed. */
#define TRY(call)                                                                                                      \
	do {                                                                                                               \
		cusparseStatus_t status_of_call = (call);                                                                      \
		if (status_of_call != CUSPARSE_STATUS_SUCCESS) return RIVAL_STATUS + status_of_call;                           \
	} while (0)

/* The library's functions; a process has them once. */
struct library {
	bool whole;
#define RIVAL_MEMBER(name) decltype(&::name) name;
	RIVAL_CALLS(RIVAL_MEMBER)
#undef RIVAL_MEMBER

	/* The version that this was built with, or the other: both know these calls. */
	library() : whole(true)
	{
		const bool later = CUSPARSE_VER_MAJOR >= 12;
		void *opened = dlopen(later ? "libcusparse.so.12" : "libcusparse.so.11", RTLD_NOW | RTLD_LOCAL);
		if (!opened) opened = dlopen(later ? "libcusparse.so.11" : "libcusparse.so.12", RTLD_NOW | RTLD_LOCAL);
#define RIVAL_FIND(name)                                                                                               \
	name = opened ? reinterpret_cast<decltype(name)>(dlsym(opened, #name)) : nullptr;                                  \
	whole = whole && name;
		RIVAL_CALLS(RIVAL_FIND)
#undef RIVAL_FIND
	}
};

const library &calls()
{
	static const library once;
	return once;
}

const cusparseOperation_t plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
const float one = 1, zero = 0;

cusparseSpMMAlg_t algorithm_of(int32_t number)
{
	switch (number) {
	case 1: return CUSPARSE_SPMM_CSR_ALG1;
	case 2: return CUSPARSE_SPMM_CSR_ALG2;
	case 3: return CUSPARSE_SPMM_CSR_ALG3;
	default: return CUSPARSE_SPMM_ALG_DEFAULT;
	}
}

/* A product of cuSPARSE's, its operands and its buffer. Preparation leaves its findings in
 * the buffer. */
struct sparse : rival {
	const library &c = calls();
	int32_t product = 0;
	cusparseSpMMAlg_t algorithm = CUSPARSE_SPMM_ALG_DEFAULT;
	cusparseHandle_t handle = nullptr;
	cusparseSpMatDescr_t w = nullptr;
	cusparseDnMatDescr_t a = nullptr, b = nullptr; /* of SpMM inp and out, of SDDMM doutᵀ and inp */
	void *buffer = nullptr;

	~sparse() override
	{
		if (w) c.cusparseDestroySpMat(w);
		if (a) c.cusparseDestroyDnMat(a);
		if (b) c.cusparseDestroyDnMat(b);
		if (handle) c.cusparseDestroy(handle);
		cudaFree(buffer);
	}

	/* describe makes a descriptor of (rows, columns), by rows or by columns. */
	int32_t describe(cusparseDnMatDescr_t *d, const void *x, int32_t rows, int32_t columns, bool by_rows,
		cudaDataType type)
	{
		TRY(c.cusparseCreateDnMat(d, rows, columns, by_rows ? columns : rows, const_cast<void *>(x), type,
			by_rows ? CUSPARSE_ORDER_ROW : CUSPARSE_ORDER_COL));
		return 0;
	}

	int32_t operands(const dynmo_cuda_rival *p, cudaDataType type)
	{
		TRY(c.cusparseCreateCsr(&w, p->rows, p->cols, p->nnz, const_cast<int32_t *>(p->row),
			const_cast<int32_t *>(p->col), p->values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
			CUSPARSE_INDEX_BASE_ZERO, type));
		int32_t status;
		if (p->product == DYNMO_CUDA_RIVAL_SDDMM) {
			status = describe(&a, p->dout, p->rows, p->n, p->by_rows, type);
			return status ? status : describe(&b, p->inp, p->n, p->cols, !p->by_rows, type);
		}
		status = describe(&a, p->inp, p->cols, p->n, p->by_rows, type);
		return status ? status : describe(&b, p->out, p->rows, p->n, p->by_rows, type);
	}

	/* ready makes the buffer and lets cuSPARSE look at the pattern. */
	int32_t ready()
	{
		const bool sampled = product == DYNMO_CUDA_RIVAL_SDDMM;
		const cusparseSDDMMAlg_t usual = CUSPARSE_SDDMM_ALG_DEFAULT;
		size_t bytes = 0;
		if (sampled)
			TRY(c.cusparseSDDMM_bufferSize(handle, plain, plain, &one, a, b, &one, w, CUDA_R_32F, usual, &bytes));
		else
			TRY(c.cusparseSpMM_bufferSize(handle, plain, plain, &one, w, a, &zero, b, CUDA_R_32F, algorithm, &bytes));
		cudaError_t status = cudaMalloc(&buffer, bytes ? bytes : 1);
		if (status != cudaSuccess) return static_cast<int32_t>(status);
		if (sampled)
			TRY(c.cusparseSDDMM_preprocess(handle, plain, plain, &one, a, b, &one, w, CUDA_R_32F, usual, buffer));
		else
			TRY(c.cusparseSpMM_preprocess(
				handle, plain, plain, &one, w, a, &zero, b, CUDA_R_32F, algorithm, buffer));
		return 0;
	}

	int32_t prepare(const dynmo_cuda *k, void *stream, const dynmo_cuda_rival *p) override
	{
		product = p->product;
		algorithm = algorithm_of(p->algorithm);
		TRY(c.cusparseCreate(&handle));
		TRY(c.cusparseSetStream(handle, static_cast<cudaStream_t>(stream)));
		int32_t status = operands(p, k->type == DYNMO_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F);
		return status ? status : ready();
	}

	int32_t run(void *stream) override
	{
		TRY(c.cusparseSetStream(handle, static_cast<cudaStream_t>(stream)));
		if (product == DYNMO_CUDA_RIVAL_SDDMM)
			TRY(c.cusparseSDDMM(handle, plain, plain, &one, a, b, &one, w, CUDA_R_32F, CUSPARSE_SDDMM_ALG_DEFAULT,
				buffer));
		else
			TRY(c.cusparseSpMM(handle, plain, plain, &one, w, a, &zero, b, CUDA_R_32F, algorithm, buffer));
		return 0;
	}
};

} // namespace

struct rival *new_sparse_rival() { return calls().whole ? new sparse() : nullptr; }

#endif
