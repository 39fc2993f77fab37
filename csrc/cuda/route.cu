/* The routing of tokens to experts, in float64: few numbers beside the work of experts. First a
 * thread has a token. Then a block has an expert and goes through the expert's choices in
 * order, a thousand at a time. So places depend on the choices alone. */
#include "reduce.cuh"

#include "pack.cuh"

namespace {

const int THREADS = 256, SORTERS = 1024; /* of a block of tokens; of an expert */
const int READINGS = 4;                  /* before the tokens of the first expert */

/* The operands of RouteTokens: kernel.go. */
struct routing {
	int32_t *chosen;
	float *weights;
	double *p, *own; /* (n, experts); own begins with the token's lse until own_gradients */
	double *readings;
	const double *scores; /* or null; or own */
	double *picked;       /* (experts): choices before any is dropped */
	double *sums;         /* (2, blocks of tokens): of the router's own losses */
	int n, experts, k, room, shares;
	double scale, auxiliary, z;
};

/* Lists the experts of the largest scores, of equal ones the first. */
__device__ void most_probable(int32_t *chosen, const double *scores, int experts, int k) {
	for (int e = 0, n = 0; e < experts; e++) {
		double score = scores[e];
		int at = n;
		if (n < k)
			n++;
		else if (at--; !(score > scores[chosen[at]]))
			continue;
		for (; at > 0 && score > scores[chosen[at - 1]]; at--) chosen[at] = chosen[at - 1];
		chosen[at] = e;
	}
}

template <typename E> __global__ void __launch_bounds__(THREADS, 4) choose(routing r, const E *logits) {
	SHARED(double, scratch, [THREADS / 32]);
	int t = blockIdx.x * THREADS + threadIdx.x;
	double lse = 0;
	if (t < r.n) {
		double *p = r.p + static_cast<size_t>(t) * r.experts, largest = -INFINITY, sum = 0;
		for (int e = 0; e < r.experts; e++) {
			if (logits) p[e] = wide(logits[static_cast<size_t>(t) * r.experts + e]);
			largest = fmax(largest, p[e]);
		}
		for (int e = 0; e < r.experts; e++) {
			p[e] = exp(p[e] - largest);
			sum += p[e];
		}
		for (int e = 0; e < r.experts; e++) p[e] /= sum;
		lse = largest + log(sum);
		const double *by = r.scores ? r.scores + static_cast<size_t>(t) * r.experts : p;
		most_probable(r.chosen + static_cast<size_t>(t) * r.k, by, r.experts, r.k);
		r.own[static_cast<size_t>(t) * r.experts] = lse;
	}
	double sum = row_reduce(lse * lse, plus(), scratch);
	if (threadIdx.x == 0) r.sums[gridDim.x + blockIdx.x] = sum;
}

/* Block e drops what its expert has no room for, first choices before second ones. */
__global__ void __launch_bounds__(SORTERS) drop(routing r) {
	SHARED(int, counts, [SORTERS / 32]);
	int e = blockIdx.x, picked = 0;
	for (int slot = 0; slot < r.k; slot++)
		for (int first = 0; first < r.n; first += SORTERS) {
			int t = first + threadIdx.x, all;
			size_t i = static_cast<size_t>(t) * r.k + slot;
			bool mine = t < r.n && r.chosen[i] == e;
			int before = rank_of(mine, &all, counts);
			if (mine && picked + before >= r.room) r.chosen[i] = ~e; /* until weigh */
			picked += all;
		}
	if (threadIdx.x > 0) return;
	r.picked[e] = picked;
	r.readings[READINGS + e] = min(picked, r.room);
}

/* Sets the weights of choices, p to the weights before scaling, own to the gradient of the router's losses. */
__global__ void __launch_bounds__(THREADS) weigh(routing r) {
	SHARED(double, scratch, [THREADS / 32]);
	int t = blockIdx.x * THREADS + threadIdx.x;
	double mean = 0;
	if (t < r.n) {
		size_t row = static_cast<size_t>(t) * r.experts;
		double *p = r.p + row, *own = r.own + row, lse = own[0], choices = static_cast<double>(r.n) * r.k, sum = 0;
		int32_t *chosen = r.chosen + static_cast<size_t>(t) * r.k;
		float *weights = r.weights + static_cast<size_t>(t) * r.k;
		for (int e = 0; e < r.experts; e++) mean += r.picked[e] / choices * p[e];
		for (int slot = 0; slot < r.k; slot++) {
			int e = chosen[slot];
			sum += p[e < 0 ? ~e : e];
		}
		for (int e = 0; e < r.experts; e++) {
			double x = p[e];
			own[e] = x * (r.auxiliary * r.experts * (r.picked[e] / choices - mean) + 2 * r.z * lse);
			bool is = !r.shares;
			for (int slot = 0; slot < r.k && !is; slot++) is = chosen[slot] == e || ~chosen[slot] == e;
			p[e] = !is ? 0 : r.shares ? x / sum : x;
		}
		for (int slot = 0; slot < r.k; slot++) {
			int e = chosen[slot];
			weights[slot] = e < 0 ? 0 : static_cast<float>(r.scale * p[e]);
			if (e < 0) chosen[slot] = -1;
		}
	}
	double sum = row_reduce(r.experts * mean, plus(), scratch);
	if (threadIdx.x == 0) r.sums[blockIdx.x] = sum;
}

/* One block: the readings of all tokens. */
__global__ void __launch_bounds__(THREADS) total(routing r, int blocks) {
	SHARED(double, scratch, [THREADS / 32]);
	double sums[2] = {}, kept = 0;
	for (int i = threadIdx.x; i < blocks; i += THREADS) {
		sums[0] += r.sums[i];
		sums[1] += r.sums[blocks + i];
	}
	for (int e = threadIdx.x; e < r.experts; e += THREADS) kept += r.readings[READINGS + e];
	double balance = row_reduce(sums[0], plus(), scratch), squares = row_reduce(sums[1], plus(), scratch), all = row_reduce(kept, plus(), scratch);
	if (threadIdx.x > 0) return;
	r.readings[0] = r.n;
	r.readings[1] = static_cast<double>(r.n) * r.k - all;
	r.readings[2] = 1000 * balance;
	r.readings[3] = 1000 * squares;
}

template <typename E>
__global__ void __launch_bounds__(THREADS)
gradient(E *dlogits, const float *dweights, const int32_t *chosen, const double *router, int n, int experts, int k,
	double scale, double loss) {
	int t = blockIdx.x * THREADS + threadIdx.x;
	if (t >= n) return;
	size_t row = static_cast<size_t>(t) * experts, first = static_cast<size_t>(t) * k;
	const double *p = router + row, *own = p + static_cast<size_t>(n) * experts;
	double sum = 0;
	for (size_t i = first; i < first + k; i++)
		if (chosen[i] >= 0) sum += scale * p[chosen[i]] * dweights[i];
	for (int e = 0; e < experts; e++) {
		double h = 0;
		for (size_t i = first; i < first + k; i++)
			if (chosen[i] == e) h = scale * p[e] * dweights[i];
		dlogits[row + e] = narrow<E>(static_cast<float>(loss * own[e] + h - p[e] * sum));
	}
}

/* The operands of PlaceTokens. */
struct placing {
	int32_t *places, *tokens;
	float *factors;
	int32_t *ends;
	const int32_t *chosen;
	const float *weights;
	int all, k, first; /* choices, of them each token's; the first expert */
};

/* Block e counts the choices of the experts before its expert, and places its expert's choices
 * behind them. The last block does the same for all other choices. These get no place (-1), and
 * the tokens and factors behind the last place become 0. */
__global__ void __launch_bounds__(SORTERS) place(placing p) {
	SHARED(int, counts, [SORTERS / 32]);
	int e = blockIdx.x, next = 0;
	bool last = e == static_cast<int>(gridDim.x) - 1;
	for (int first = 0; first < p.all; first += SORTERS) {
		int i = first + threadIdx.x, all, at = i < p.all ? p.chosen[i] - p.first : -1;
		rank_of(at >= 0 && at < e, &all, counts);
		next += all;
	}
	if (threadIdx.x == 0) p.ends[e] = next;
	for (int first = 0; first < p.all; first += SORTERS) {
		int i = first + threadIdx.x, all, at = i < p.all ? p.chosen[i] - p.first : 0;
		bool mine = i < p.all && (last ? at < 0 || at >= e : at == e);
		int place = next + rank_of(mine, &all, counts);
		next += all;
		if (!mine) continue;
		p.places[i] = last ? -1 : place;
		p.tokens[place] = last ? 0 : i / p.k;
		p.factors[place] = last ? 0 : p.weights[i];
	}
}

template <typename E> int32_t run_choose(void *stream, const routing &r, const void *logits, int blocks) {
	LAUNCH(choose<E>, dim3(blocks), THREADS, 0, stream, r, static_cast<const E *>(logits));
	return launched();
}

template <typename E>
int32_t run_gradient(void *stream, void *dlogits, const float *dweights, const int32_t *chosen, const double *router,
	int n, int experts, int k, double scale, double loss) {
	LAUNCH(gradient<E>, dim3(parts(n, THREADS)), THREADS, 0, stream, static_cast<E *>(dlogits), dweights, chosen, router,
		n, experts, k, scale, loss);
	return launched();
}

} // namespace

int32_t dynmo_cuda_route_tokens(dynmo_cuda *k, void *stream, int32_t *chosen, float *weights, double *router,
	double *readings, const void *logits, const double *scores, int32_t n, int32_t experts, int32_t top, int32_t room,
	int32_t shares, double scale, double auxiliary, double z) {
	int blocks = static_cast<int>(parts(n, THREADS));
	void *work;
	int32_t status = workspace(k, (experts + 2 * static_cast<size_t>(blocks)) * sizeof(double), &work);
	if (status) return status;
	double *picked = static_cast<double *>(work);
	routing r = {chosen, weights, router, router + static_cast<size_t>(n) * experts, readings, scores, picked,
		picked + experts, n, experts, top, room, shares, scale, auxiliary, z};
	if (n > 0) status = BY_TYPE(k, run_choose, stream, r, logits, blocks);
	if (status) return status;
	LAUNCH(drop, dim3(experts), SORTERS, 0, stream, r);
	if (n > 0) LAUNCH(weigh, dim3(blocks), THREADS, 0, stream, r);
	LAUNCH(total, dim3(1), THREADS, 0, stream, r, blocks);
	return launched();
}

int32_t dynmo_cuda_route_gradient(dynmo_cuda *k, void *stream, void *dlogits, const float *dweights,
	const int32_t *chosen, const double *router, int32_t n, int32_t experts, int32_t top, double scale, double loss) {
	if (n == 0) return 0;
	return BY_TYPE(k, run_gradient, stream, dlogits, dweights, chosen, router, n, experts, top, scale, loss);
}

int32_t dynmo_cuda_place_tokens(dynmo_cuda *, void *stream, int32_t *places, int32_t *tokens, float *factors,
	int32_t *ends, const int32_t *chosen, const float *weights, int32_t n, int32_t experts, int32_t top,
	int32_t first) {
	placing p = {places, tokens, factors, ends, chosen, weights, n * top, top, first};
	LAUNCH(place, dim3(experts + 1), SORTERS, 0, stream, p);
	return launched();
}
