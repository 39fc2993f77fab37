/* Chooses the tokens that a mixture of depths takes, in float64: a few numbers a token. A block
 * of threads has a sequence and goes through the sequence a thousand tokens at a time. So the
 * choice depends on the sequence alone. */
#include "reduce.cuh"

namespace {

const int THREADS = 1024;
const int SUMS = 4; /* of a sequence: tokens taken, correct predictions, cross-entropies of logits and of guesses */

/* The operands of TakeTokens: kernel.go. */
struct choice {
	int32_t *taken;
	double *readings;
	const int32_t *offsets;
	double *sums; /* (b, SUMS) */
	int n, b;
	double capacity, threshold, router, predictor;
};

/* How many tokens of a sequence are first: kernel.First. */
__device__ int first_of(double capacity, int tokens)
{
	double share = ceil(fma(capacity, static_cast<double>(tokens), -1e-9));
	return share < 1 ? min(tokens, 1) : share < tokens ? static_cast<int>(share) : tokens;
}

/* Orders as z does; 0 of NaN, equal of both zeros. */
__device__ uint32_t key_of(float z)
{
	uint32_t bits = __float_as_uint(z == 0 ? 0.0f : z);
	if (z != z) return 0;
	return bits >> 31 ? ~bits : bits | 0x80000000;
}

/* Returns sigmoid(z), and adds the binary cross-entropy of it against a label. */
__device__ double cross_entropy(double z, bool label, double *sum)
{
	double e = exp(-fabs(z));
	*sum += (z > 0 ? z : 0) - (label ? z : 0) + log1p(e);
	return (z < 0 ? e : 1) / (1 + e);
}

/* The least of the keys of the `left` largest in [lo, hi): bit by bit the largest number
 * that as many keys reach. All threads call it. */
template <typename E> __device__ uint32_t least_of(const E *logits, int lo, int hi, int left, int *scratch)
{
	uint32_t least = 0;
	for (int bit = 31; bit >= 0; bit--) {
		uint32_t next = least | 1u << bit;
		int reach = 0;
		for (int i = lo + threadIdx.x; i < hi; i += THREADS) reach += key_of(wide(logits[i])) >= next;
		if (row_reduce(reach, plus(), scratch) >= left) least = next;
	}
	return least;
}

/* Whether a token is taken, and whether the prediction that it is first, or not, was correct. */
struct verdict {
	bool taken, right;
};

/* Decides on token i, and sets its gradients. */
template <typename E>
__device__ verdict judge(const choice &c, E *dlogits, E *dguesses, const E *logits, const E *guesses, int i, bool first, double *losses)
{
	double p = cross_entropy(wide(logits[i]), first, &losses[0]);
	dlogits[i] = narrow<E>(static_cast<float>(c.router * (p - first)));
	bool predicted = p > 0.5, taken = first;
	if (guesses) {
		double q = cross_entropy(wide(guesses[i]), first, &losses[1]);
		dguesses[i] = narrow<E>(static_cast<float>(c.predictor * (q - first)));
		taken = predicted = q > c.threshold;
	}
	c.taken[i] = taken;
	return {taken, predicted == first};
}

template <typename E>
__global__ void __launch_bounds__(THREADS) take(choice c, E *dlogits, E *dguesses, const E *logits, const E *guesses)
{
	SHARED(int, counts, [THREADS / 32]);
	SHARED(double, scratch, [THREADS / 32]);
	int lo = c.offsets[blockIdx.x], hi = c.offsets[blockIdx.x + 1], left = first_of(c.capacity, hi - lo);
	uint32_t least = least_of(logits, lo, hi, left, counts);
	int above = 0;
	for (int i = lo + threadIdx.x; i < hi; i += THREADS) above += key_of(wide(logits[i])) > least;
	int ties = left - row_reduce(above, plus(), counts); /* that are first, the earlier ones */
	int taken = 0, right = 0;
	double losses[2] = {};
	for (int from = lo; from < hi; from += THREADS) {
		int i = from + threadIdx.x, all;
		uint32_t key = i < hi ? key_of(wide(logits[i])) : 0;
		bool tie = i < hi && key == least;
		bool earlier = rank_of(tie, &all, counts) < ties;
		ties -= all;
		if (i >= hi) continue;
		verdict v = judge(c, dlogits, dguesses, logits, guesses, i, key > least || (tie && earlier), losses);
		taken += v.taken;
		right += v.right;
	}
	double sums[SUMS] = {static_cast<double>(taken), static_cast<double>(right), losses[0], losses[1]};
	for (int j = 0; j < SUMS; j++) {
		double sum = row_reduce(sums[j], plus(), scratch);
		if (threadIdx.x == 0) c.sums[blockIdx.x * SUMS + j] = sum;
	}
}

/* One warp: the readings of all sequences, added in their order. */
__global__ void __launch_bounds__(32) total(choice c)
{
	int j = threadIdx.x;
	if (j == 0) c.readings[0] = c.n;
	if (j >= SUMS) return;
	double sum = 0;
	for (int s = 0; s < c.b; s++) sum += c.sums[s * SUMS + j];
	c.readings[1 + j] = j < 2 ? sum : 1000 * sum;
}

/* The operands of ListTokens. */
struct listing {
	int32_t *rows;
	float *gates, *keeps;
	int32_t *listed, *ends;
	const int32_t *taken, *positions, *offsets;
	int places, one;
};

/* Sets a place of the list, to 0 where row is -1. */
template <typename E> __device__ void set_place(const listing &l, const E *logits, int at, int row)
{
	double unused = 0, gate = row < 0 ? 0 : l.one ? 1 : cross_entropy(wide(logits[row]), true, &unused);
	l.rows[at] = row < 0 ? 0 : row;
	l.listed[at] = row < 0 ? 0 : l.positions[row];
	l.gates[at] = static_cast<float>(gate);
	l.keeps[at] = row < 0 ? 0 : static_cast<float>(1 - gate);
}

/* Block s lists its sequence's tokens behind those of the sequences before it, which it
 * counts. The last one has no tokens and ends the list. */
template <typename E> __global__ void __launch_bounds__(THREADS) list(listing l, const E *logits)
{
	SHARED(int, counts, [THREADS / 32]);
	bool last = blockIdx.x == gridDim.x - 1;
	int lo = l.offsets[blockIdx.x], hi = last ? lo : l.offsets[blockIdx.x + 1], before = 0;
	for (int i = threadIdx.x; i < lo; i += THREADS) before += l.taken[i];
	int next = row_reduce(before, plus(), counts);
	if (threadIdx.x == 0) l.ends[blockIdx.x] = next;
	for (int from = lo; from < hi; from += THREADS) {
		int i = from + threadIdx.x, all;
		bool mine = i < hi && l.taken[i];
		int at = next + rank_of(mine, &all, counts);
		next += all;
		if (mine) set_place(l, logits, at, i);
	}
	for (int at = next + threadIdx.x; last && at < l.places; at += THREADS) set_place(l, logits, at, -1);
}

template <typename E>
int32_t run_take(void *stream, const choice &c, void *dlogits, void *dguesses, const void *logits, const void *guesses)
{
	LAUNCH(take<E>, dim3(c.b), THREADS, 0, stream, c, static_cast<E *>(dlogits), static_cast<E *>(dguesses),
		static_cast<const E *>(logits), static_cast<const E *>(guesses));
	return launched();
}

template <typename E> int32_t run_list(void *stream, const listing &l, const void *logits, int b)
{
	LAUNCH(list<E>, dim3(b + 1), THREADS, 0, stream, l, static_cast<const E *>(logits));
	return launched();
}

} // namespace

int32_t dynmo_cuda_take_tokens(dynmo_cuda *k, void *stream, int32_t *taken, double *readings, void *dlogits, void *dguesses,
	const void *logits, const void *guesses, const int32_t *offsets, int32_t n, int32_t b, double capacity, double threshold,
	double router, double predictor)
{
	void *sums;
	int32_t status = workspace(k, static_cast<size_t>(b) * SUMS * sizeof(double), &sums);
	if (status) return status;
	choice c = {taken, readings, offsets, static_cast<double *>(sums), n, b, capacity, threshold, router, predictor};
	if (b > 0) status = BY_TYPE(k, run_take, stream, c, dlogits, dguesses, logits, guesses);
	if (status) return status;
	LAUNCH(total, dim3(1), 32, 0, stream, c);
	return launched();
}

int32_t dynmo_cuda_list_tokens(dynmo_cuda *k, void *stream, int32_t *rows, float *factors, int32_t *listed, int32_t *ends,
	const int32_t *taken, const void *logits, const int32_t *positions, const int32_t *offsets, int32_t, int32_t b,
	int32_t places, int32_t one)
{
	listing l = {rows, factors, factors + places, listed, ends, taken, positions, offsets, places, one};
	return BY_TYPE(k, run_list, stream, l, logits, b);
}
