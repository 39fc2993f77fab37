/* A stand-in for cuBLASLt on the host: the functions that csrc/cuda uses, as
 * cublasLt.h defines them, on streams of this folder's driver. It refuses the same
 * calls as cuBLASLt: shapes that do not fit, leading dimensions that are too small,
 * and pointers that are less aligned than the call has promised. Two products have
 * no algorithm here, as examples: GELU whose aux is not aligned, and sums of B in
 * float. Speed and bits say nothing about the real cuBLASLt. */
#include "hooks.h"

#include <cublasLt.h>
#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

struct layout {
	cudaDataType_t type;
	int64_t rows, columns, ld;
};

struct operation {
	cublasComputeType_t compute;
	cudaDataType_t scale;
	int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
	uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
	const void *bias = nullptr;
	void *aux = nullptr;
	int64_t aux_ld = 0;
};

enum { A, B, C, D, MATRICES };

struct preference {
	uint64_t workspace = 0;
	uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
	uint32_t alignment[MATRICES] = {256, 256, 256, 256};
};

/* The contents of a cublasLtMatmulAlgo_t. */
struct algorithm {
	uint64_t mark, workspace;
	uint32_t alignment[MATRICES];
	uint32_t descending; /* the order of sums over k */
};

constexpr uint64_t mark = 0x64796e6d6f; /* of an algorithm that came from here */
constexpr uint64_t workspace_wanted = 1 << 20;

const layout &of(cublasLtMatrixLayout_t x) { return *reinterpret_cast<const layout *>(x); }
const operation &of(cublasLtMatmulDesc_t x) { return *reinterpret_cast<const operation *>(x); }
const preference &of(cublasLtMatmulPreference_t x) { return *reinterpret_cast<const preference *>(x); }

bool biased(uint32_t epilogue) {
	return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

bool has_aux(uint32_t epilogue) {
	return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
		epilogue == CUBLASLT_EPILOGUE_DGELU;
}

bool aligned(const void *p, uint32_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

/* One product, with all that the worker of its stream needs. */
struct product {
	operation op;
	layout of[MATRICES];
	const void *a, *b, *c;
	void *d;
	float alpha, beta;
	int64_t m, n, k;
	bool descending;
};

/* fits says whether the descriptors describe one product. */
cublasStatus_t fits(const operation &op, const layout &a, const layout &b, const layout &c, const layout &d) {
	int64_t m = op.transpose_a ? a.columns : a.rows, k = op.transpose_a ? a.rows : a.columns;
	int64_t n = op.transpose_b ? b.rows : b.columns;
	if (k != (op.transpose_b ? b.columns : b.rows) || m != d.rows || n != d.columns || c.rows != m || c.columns != n ||
		m < 1 || n < 1 || k < 1)
		return CUBLAS_STATUS_INVALID_VALUE;
	for (const layout *x : {&a, &b, &c, &d})
		if (x->ld < x->rows) return CUBLAS_STATUS_INVALID_VALUE;
	if ((biased(op.epilogue) || op.epilogue == CUBLASLT_EPILOGUE_BGRADB) && !op.bias) return CUBLAS_STATUS_INVALID_VALUE;
	if (has_aux(op.epilogue) && (!op.aux || op.aux_ld < m)) return CUBLAS_STATUS_INVALID_VALUE;
	return CUBLAS_STATUS_SUCCESS;
}

/* done_here says whether there is an algorithm for a product that fits. */
bool done_here(const operation &op, const layout &a, const layout &b, const layout &c, const layout &d) {
	bool types = (a.type == CUDA_R_32F || a.type == CUDA_R_16BF) && b.type == a.type && c.type == d.type &&
		(d.type == a.type || d.type == CUDA_R_32F);
	bool rough = op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F; /* no rougher here */
	bool sums = (op.compute == CUBLAS_COMPUTE_32F || rough) && op.scale == CUDA_R_32F;
	bool plain = op.epilogue == CUBLASLT_EPILOGUE_DEFAULT || op.epilogue == CUBLASLT_EPILOGUE_BIAS;
	bool sums_of_b = op.epilogue == CUBLASLT_EPILOGUE_BGRADB && a.type == CUDA_R_16BF;
	bool aux = has_aux(op.epilogue) && op.aux_ld % 8 == 0 && aligned(op.aux, 16) && d.type == CUDA_R_16BF;
	return types && sums && (plain || aux || sums_of_b);
}

float read(const void *x, cudaDataType_t type, int64_t i) {
	return type == CUDA_R_16BF ? __bfloat162float(static_cast<const __nv_bfloat16 *>(x)[i])
							   : static_cast<const float *>(x)[i];
}

void write(void *x, cudaDataType_t type, int64_t i, float value) {
	if (type == CUDA_R_16BF)
		static_cast<__nv_bfloat16 *>(x)[i] = __float2bfloat16_rn(value);
	else
		static_cast<float *>(x)[i] = value;
}

enum { ROWS = 16, COLUMNS = 4 }; /* of a tile, whose sums stay in registers */

typedef float vector __attribute__((vector_size(32), aligned(4), may_alias));

/* sum (COLUMNS, ROWS) = Σ_p a (k, ROWS) · b (k, COLUMNS), in ascending order of p, or
 * descending. */
void tile(float *sum, const float *a, const float *b, int64_t k, bool descending) {
	vector s[COLUMNS][2] = {};
	int64_t step = descending ? -1 : 1;
	if (descending) a += (k - 1) * ROWS, b += (k - 1) * COLUMNS;
	for (int64_t p = 0; p < k; p++, a += step * ROWS, b += step * COLUMNS) {
		vector low = *reinterpret_cast<const vector *>(a), high = *reinterpret_cast<const vector *>(a + 8);
		for (int c = 0; c < COLUMNS; c++) {
			s[c][0] += low * b[c];
			s[c][1] += high * b[c];
		}
	}
	memcpy(sum, s, sizeof s);
}

/* pack returns a matrix of `sides` vectors of k elements as float, `width` vectors
 * beside each other for each k, 0 where there is none. Element (side, p) lies at
 * side·ld + p, or at side + p·ld if it is turned. */
std::vector<float> pack(const void *x, const layout &l, bool turned, int64_t sides, int64_t k, int64_t width) {
	int64_t panels = (sides + width - 1) / width;
	std::vector<float> packed(panels * width * k);
	for (int64_t side = 0; side < sides; side++)
		for (int64_t p = 0; p < k; p++)
			packed[side / width * width * k + p * width + side % width] =
				read(x, l.type, turned ? side + p * l.ld : side * l.ld + p);
	return packed;
}

float gelu_tanh(float x) { return std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)); }

/* finish stores the element (i, j) of D whose sum over k is x. */
void finish(const product &t, int64_t i, int64_t j, float x) {
	x *= t.alpha;
	if (t.beta != 0) x += t.beta * read(t.c, t.of[C].type, i + j * t.of[C].ld);
	if (biased(t.op.epilogue)) x += read(t.op.bias, t.of[D].type, i);
	int64_t at = i + j * t.op.aux_ld;
	if (t.op.epilogue == CUBLASLT_EPILOGUE_DGELU) {
		float y = read(t.op.aux, t.of[D].type, at), u = gelu_tanh(y);
		x *= 0.5f * (1 + u) + 0.5f * y * (1 - u * u) * 0.7978845608f * (1 + 3 * 0.044715f * y * y);
	} else if (has_aux(t.op.epilogue)) {
		write(t.op.aux, t.of[D].type, at, x);
		x = 0.5f * x * (1 + gelu_tanh(x));
	}
	write(t.d, t.of[D].type, i + j * t.of[D].ld, x);
}

/* sum_b stores Σ_k op(B), in ascending order of k, from its packed columns. */
void sum_b(const product &t, const float *packed) {
	for (int64_t j = 0; j < t.n; j++) {
		float sum = 0;
		for (int64_t p = 0; p < t.k; p++) sum += packed[j / COLUMNS * COLUMNS * t.k + p * COLUMNS + j % COLUMNS];
		write(const_cast<void *>(t.op.bias), t.of[D].type, j, sum);
	}
}

void multiply(void *operand) {
	const product *t = static_cast<product *>(operand);
	std::vector<float> a = pack(t->a, t->of[A], !t->op.transpose_a, t->m, t->k, ROWS);
	std::vector<float> b = pack(t->b, t->of[B], t->op.transpose_b, t->n, t->k, COLUMNS);
	if (t->op.epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_b(*t, b.data());
	float sum[COLUMNS][ROWS];
	for (int64_t i = 0; i < t->m; i += ROWS)
		for (int64_t j = 0; j < t->n; j += COLUMNS) {
			tile(sum[0], a.data() + i * t->k, b.data() + j * t->k, t->k, t->descending);
			for (int64_t c = 0; c < COLUMNS && j + c < t->n; c++)
				for (int64_t r = 0; r < ROWS && i + r < t->m; r++) finish(*t, i + r, j + c, sum[c][r]);
		}
}

void drop(void *operand) { delete static_cast<product *>(operand); }

/* attribute copies the value of an attribute if it has the size of *field. */
template <typename T> cublasStatus_t attribute(T *field, const void *value, size_t bytes) {
	if (bytes != sizeof *field) return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(field, value, bytes);
	return CUBLAS_STATUS_SUCCESS;
}

} // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
	*handle = reinterpret_cast<cublasLtHandle_t>(new char);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
	delete reinterpret_cast<char *>(handle);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtGetProperty(libraryPropertyType, int *value) {
	*value = 0;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *x, cudaDataType type, uint64_t rows, uint64_t columns,
	int64_t ld) {
	layout *l = new layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
	*x = reinterpret_cast<cublasLtMatrixLayout_t>(l);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) {
	delete reinterpret_cast<layout *>(x);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *x, cublasComputeType_t compute, cudaDataType_t scale) {
	operation *op = new operation();
	op->compute = compute;
	op->scale = scale;
	*x = reinterpret_cast<cublasLtMatmulDesc_t>(op);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x) {
	delete reinterpret_cast<operation *>(x);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t x, cublasLtMatmulDescAttributes_t name,
	const void *value, size_t bytes) {
	operation *op = reinterpret_cast<operation *>(x);
	switch (name) {
	case CUBLASLT_MATMUL_DESC_TRANSA: return attribute(&op->transpose_a, value, bytes);
	case CUBLASLT_MATMUL_DESC_TRANSB: return attribute(&op->transpose_b, value, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE: return attribute(&op->epilogue, value, bytes);
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return attribute(&op->bias, value, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return attribute(&op->aux, value, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return attribute(&op->aux_ld, value, bytes);
	default: return CUBLAS_STATUS_INVALID_VALUE;
	}
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *x) {
	*x = reinterpret_cast<cublasLtMatmulPreference_t>(new preference());
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x) {
	delete reinterpret_cast<preference *>(x);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t x,
	cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t bytes) {
	preference *p = reinterpret_cast<preference *>(x);
	switch (name) {
	case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return attribute(&p->workspace, value, bytes);
	case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return attribute(&p->reduction, value, bytes);
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return attribute(&p->alignment[A], value, bytes);
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return attribute(&p->alignment[B], value, bytes);
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return attribute(&p->alignment[C], value, bytes);
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return attribute(&p->alignment[D], value, bytes);
	default: return CUBLAS_STATUS_INVALID_VALUE;
	}
}

/* There are two algorithms, whose sums have different bits. Each relies on all the
 * alignment that it is promised, and needs a workspace where it may have one. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
	cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
	cublasLtMatmulPreference_t preferred, int wanted, cublasLtMatmulHeuristicResult_t *results, int *found) {
	*found = 0;
	if (!handle || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
	cublasStatus_t status = fits(of(op), of(a), of(b), of(c), of(d));
	if (status != CUBLAS_STATUS_SUCCESS) return status;
	if (!done_here(of(op), of(a), of(b), of(c), of(d))) return CUBLAS_STATUS_NOT_SUPPORTED;
	const preference &p = of(preferred);
	algorithm chosen = {mark, p.workspace < workspace_wanted ? 0 : workspace_wanted, {}, 0};
	memcpy(chosen.alignment, p.alignment, sizeof chosen.alignment);
	static_assert(sizeof chosen <= sizeof results->algo, "an algorithm is opaque, but not that large");
	for (; *found < wanted && *found < 2; ++*found, chosen.descending = 1) {
		results[*found] = {};
		memcpy(&results[*found].algo, &chosen, sizeof chosen);
		results[*found].workspaceSize = chosen.workspace;
		results[*found].state = CUBLAS_STATUS_SUCCESS;
	}
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
	cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
	cublasLtMatmulHeuristicResult_t *result) {
	algorithm chosen;
	memcpy(&chosen, algo, sizeof chosen);
	if (!handle || !result || chosen.mark != mark) return CUBLAS_STATUS_INVALID_VALUE;
	cublasStatus_t status = fits(of(op), of(a), of(b), of(c), of(d));
	if (status != CUBLAS_STATUS_SUCCESS) return status;
	if (!done_here(of(op), of(a), of(b), of(c), of(d))) return CUBLAS_STATUS_NOT_SUPPORTED;
	*result = {};
	result->algo = *algo;
	result->workspaceSize = chosen.workspace;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha, const void *a,
	cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl, const void *beta, const void *c,
	cublasLtMatrixLayout_t cl, void *d, cublasLtMatrixLayout_t dl, const cublasLtMatmulAlgo_t *algo, void *workspace,
	size_t workspace_bytes, cudaStream_t stream) {
	if (!handle || !alpha || !beta || !a || !b || !c || !d || !algo) return CUBLAS_STATUS_INVALID_VALUE;
	cublasStatus_t status = fits(of(op), of(al), of(bl), of(cl), of(dl));
	if (status != CUBLAS_STATUS_SUCCESS) return status;
	if (!done_here(of(op), of(al), of(bl), of(cl), of(dl))) return CUBLAS_STATUS_NOT_SUPPORTED;
	algorithm chosen;
	memcpy(&chosen, algo, sizeof chosen);
	bool room = chosen.workspace == 0 || (workspace && workspace_bytes >= chosen.workspace);
	if (chosen.mark != mark || !room) return CUBLAS_STATUS_INVALID_VALUE;
	const void *matrices[MATRICES] = {a, b, c, d};
	for (int i = 0; i < MATRICES; i++)
		if (!aligned(matrices[i], chosen.alignment[i])) return CUBLAS_STATUS_INVALID_VALUE;
	product *t = new product{of(op), {of(al), of(bl), of(cl), of(dl)}, a, b, c, d, *static_cast<const float *>(alpha),
		*static_cast<const float *>(beta), of(dl).rows, of(dl).columns,
		of(op).transpose_a ? of(al).rows : of(al).columns, chosen.descending != 0};
	int refused = dynmo_emulate_enqueue(stream, multiply, t, drop);
	return refused ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
