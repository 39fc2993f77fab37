/* The dense product of float operands on tensor cores, in TF32: operands of 10 bits behind
 * the point, sums in float. No training here uses it; it is what a sparse product of float
 * has to beat where its results may be so rough. */
#include "rival.cuh"

#include "blaslt.cuh"
#include "products.cuh"

namespace {

#define TRY(call)                                                                                                      \
	do {                                                                                                               \
		cublasStatus_t status_of_call = (call);                                                                        \
		if (status_of_call != CUBLAS_STATUS_SUCCESS) return PRODUCTS_STATUS + status_of_call;                          \
	} while (0)

constexpr size_t workspace_bytes = 32 << 20;

/* outᵀ (rows, n) = W (rows, cols) · inpᵀ (cols, n), columns one after the other. */
struct dense : rival {
	cublasLtHandle_t handle = nullptr;
	cublasLtMatmulDesc_t operation = nullptr;
	cublasLtMatrixLayout_t w = nullptr, inp = nullptr, out = nullptr;
	cublasLtMatmulAlgo_t algorithm = {};
	void *workspace = nullptr;
	dynmo_cuda_rival product = {};

	~dense() override
	{
		for (cublasLtMatrixLayout_t layout : {w, inp, out})
			if (layout) blaslt().MatrixLayoutDestroy(layout);
		if (operation) blaslt().MatmulDescDestroy(operation);
		if (handle) blaslt().Destroy(handle);
		cudaFree(workspace);
	}

	int32_t describe()
	{
		const dynmo_cuda_rival &p = product;
		const int32_t turned = CUBLAS_OP_T;
		TRY(blaslt().MatmulDescCreate(&operation, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F));
		TRY(blaslt().MatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned));
		TRY(blaslt().MatrixLayoutCreate(&w, CUDA_R_32F, p.cols, p.rows, p.cols));
		TRY(blaslt().MatrixLayoutCreate(&inp, CUDA_R_32F, p.cols, p.n, p.cols));
		TRY(blaslt().MatrixLayoutCreate(&out, CUDA_R_32F, p.rows, p.n, p.rows));
		return 0;
	}

	/* choose takes cuBLASLt's first choice. */
	int32_t choose()
	{
		cublasLtMatmulPreference_t preference;
		TRY(blaslt().MatmulPreferenceCreate(&preference));
		const uint64_t most = workspace_bytes;
		const uint32_t alignment = 16;
		cublasLtMatmulHeuristicResult_t result = {};
		int found = 0;
		cublasStatus_t outcome = blaslt().MatmulPreferenceSetAttribute(
			preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
		for (cublasLtMatmulPreferenceAttributes_t operand :
			{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
				CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
			if (outcome == CUBLAS_STATUS_SUCCESS)
				outcome = blaslt().MatmulPreferenceSetAttribute(preference, operand, &alignment, sizeof alignment);
		if (outcome == CUBLAS_STATUS_SUCCESS)
			outcome = blaslt().MatmulAlgoGetHeuristic(
				handle, operation, w, inp, out, out, preference, 1, &result, &found);
		blaslt().MatmulPreferenceDestroy(preference);
		TRY(outcome);
		algorithm = result.algo;
		return found > 0 ? 0 : static_cast<int32_t>(PRODUCTS_STATUS + CUBLAS_STATUS_NOT_SUPPORTED);
	}

	int32_t prepare(const dynmo_cuda *k, void *, const dynmo_cuda_rival *p) override
	{
		if (k->type != DYNMO_CUDA_F32) return DYNMO_CUDA_SHAPE;
		product = *p;
		TRY(blaslt().Create(&handle));
		int32_t status = static_cast<int32_t>(cudaMalloc(&workspace, workspace_bytes));
		if (!status) status = describe();
		return status ? status : choose();
	}

	int32_t run(void *stream) override
	{
		const float one = 1, zero = 0;
		TRY(blaslt().Matmul(handle, operation, &one, product.values, w, product.inp, inp, &zero, product.out, out,
			product.out, out, &algorithm, workspace, workspace_bytes, static_cast<cudaStream_t>(stream)));
		return 0;
	}
};

} // namespace

struct rival *new_dense_rival() { return new dense(); }
