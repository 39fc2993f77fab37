/* Which algorithms cuBLASLt has for a product, and which one is to make it. Bits follow
 * the choice, so whoever chooses has all ranks choose alike. */
#include "plans.cuh"

#include <algorithm>
#include <vector>

namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(dynmo_cuda_choice::algorithm), "an algorithm is eight words");

int32_t status(cublasStatus_t s) { return s == CUBLAS_STATUS_SUCCESS ? 0 : PRODUCTS_STATUS + s; }

/* like sets *p to a product of a kind, with operands as aligned as the kind's. */
void like(const dynmo_cuda *k, const kind &key, product *p) {
	uintptr_t element_bytes = k->type == DYNMO_CUDA_BF16 ? sizeof(bf16) : sizeof(float);
	auto operand = [&](int at) {
		return reinterpret_cast<void *>(uintptr_t{4096} + (key[4] >> at & 1 ? 0 : element_bytes));
	};
	int32_t flags = key[3];
	*p = product{};
	p->m = key[0], p->n = key[1], p->k = key[2];
	p->transpose_a = flags & FLAG_TRANSPOSE_A, p->transpose_b = flags & FLAG_TRANSPOSE_B, p->wide = flags & FLAG_WIDE;
	p->activation = static_cast<activation>(flags / FLAG_ACTIVATION);
	p->a = operand(AT_A), p->b = operand(AT_B), p->d = operand(AT_D);
	if (flags & FLAG_BIAS) p->bias = operand(AT_BIAS);
	if (flags & FLAG_ADD) p->add = operand(AT_ADD);
	if (flags & FLAG_SUMS) p->sums = static_cast<float *>(operand(AT_SUMS));
	if (p->activation != ACTIVATION_NONE) p->aux = operand(AT_AUX);
}

/* plan_as sets *t to the plan of a choice, if this library can make its product so. */
cublasStatus_t plan_as(const dynmo_cuda *k, const dynmo_cuda_choice &choice, const product &p, plan *t) {
	t->plain = choice.plain != 0;
	if (t->plain) return CUBLAS_STATUS_SUCCESS;
	if (!offered(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
	TRY(describe(k, p, t));
	std::copy(std::begin(choice.algorithm), std::end(choice.algorithm), t->algorithm.data);
	cublasLtMatmulHeuristicResult_t result = {};
	TRY(blaslt().MatmulAlgoCheck(k->products->handle, t->operation, t->a, t->b, t->d, t->d, &t->algorithm, &result));
	return result.workspaceSize > workspace_bytes ? CUBLAS_STATUS_NOT_SUPPORTED : result.state;
}

} // namespace

/* With sums the last choice is that cuBLASLt does not make them. */
int32_t dynmo_cuda_candidates(dynmo_cuda *k, int32_t call, int32_t biased, int32_t n, int32_t c, int32_t o,
	dynmo_cuda_choice *list, int32_t most, int32_t *found) {
	*found = 0;
	product p;
	if (int32_t failed = product_of(call, biased, n, c, o, &p)) return failed;
	if (!offered(p)) return 0;
	kind key = kind_of(p);
	plan t = {};
	std::vector<cublasLtMatmulHeuristicResult_t> results(most);
	int count = 0;
	cublasStatus_t outcome = describe(k, p, &t);
	if (outcome == CUBLAS_STATUS_SUCCESS) outcome = propose(k, p, t, most, results.data(), &count);
	discard(t);
	if (outcome != CUBLAS_STATUS_SUCCESS) return status(outcome);
	if (p.sums) count = std::min(count, most - 1);
	for (int i = 0; i < count; i++) {
		dynmo_cuda_choice &choice = list[(*found)++] = {};
		std::copy(key.begin(), key.end(), choice.kind);
		std::copy(std::begin(results[i].algo.data), std::end(results[i].algo.data), choice.algorithm);
	}
	if (!p.sums) return 0;
	dynmo_cuda_choice &apart = list[(*found)++] = {};
	std::copy(key.begin(), key.end(), apart.kind);
	apart.plain = 1;
	return 0;
}

int32_t dynmo_cuda_choose(dynmo_cuda *k, const dynmo_cuda_choice *choice) {
	kind key;
	std::copy(std::begin(choice->kind), std::end(choice->kind), key.begin());
	product p;
	like(k, key, &p);
	plan made = {};
	cublasStatus_t outcome = plan_as(k, *choice, p, &made);
	if (outcome != CUBLAS_STATUS_SUCCESS) {
		discard(made);
		return status(outcome);
	}
	plan &known = k->products->plans[key];
	discard(known);
	known = made;
	return 0;
}

int32_t dynmo_cuda_fallbacks(dynmo_cuda *k, int64_t *count) {
	*count = k->products->fallbacks;
	return 0;
}
