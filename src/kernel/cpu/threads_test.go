//go:build blas && cgo

package cpu

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// result collects what calls return, as bits.
type result map[string][]uint64

func (r result) add(call string, outs ...any) {
	for _, out := range outs {
		switch x := out.(type) {
		case []float32:
			for _, y := range x {
				r[call] = append(r[call], uint64(math.Float32bits(y)))
			}
		case []float64:
			for _, y := range x {
				r[call] = append(r[call], math.Float64bits(y))
			}
		case []int32:
			for _, y := range x {
				r[call] = append(r[call], uint64(y))
			}
		case []int64:
			for _, y := range x {
				r[call] = append(r[call], uint64(y))
			}
		}
	}
}

func mem[T tensor.Element](x []T) tensor.Mem { return tensor.From(x) }

// even returns the offsets of b sequences of t tokens.
func even(b, t int) tensor.Mem {
	offsets := make([]int32, b+1)
	for i := range offsets {
		offsets[i] = int32(i * t)
	}
	return mem(offsets)
}

// calls makes every call on b sequences of t tokens with c channels and nh
// heads, o outputs, and v words.
func calls(k *backend, b, t, c, nh, o, v int) result {
	r, n := result{}, b*t
	r.products(k, n, c, o)
	r.sparse(k, n, c, o, 1)
	r.sparse(k, n, c/kernel.Block*kernel.Block, o/kernel.Block*kernel.Block, kernel.Block)
	r.blocks(k, b, t, c, nh)
	r.llama(k, b, t, c, nh)
	r.ends(k, b, t, c, v)
	r.elements(k, n*c)
	return r
}

func (r result) products(k *backend, n, c, o int) {
	inp, weight, dout, bias := normal(1, n*c), normal(2, o*c), normal(3, n*o), normal(4, o)
	out, dinp, dweight, dbias := make([]float32, n*o), make([]float32, n*c), normal(5, o*c), normal(6, o)
	k.MatmulForward(nil, mem(out), mem(inp), mem(weight), mem(bias), n, c, o)
	r.add("MatmulForward", out)
	k.MatmulForward(nil, mem(out), mem(inp), mem(weight), tensor.Mem{}, n, c, o)
	r.add("MatmulForward without bias", out)
	row := out[:o]
	k.useVectors()
	k.MatmulForward(nil, mem(row), mem(inp[:c]), mem(weight), mem(bias), 1, c, o)
	r.add("MatmulForward of a vector", row)
	k.MatmulBackwardInput(nil, mem(dinp), mem(dout), mem(weight), n, c, o)
	r.add("MatmulBackwardInput", dinp)
	k.MatmulBackwardWeight(nil, mem(dweight), mem(dbias), mem(dout), mem(inp), n, c, o)
	r.add("MatmulBackwardWeight", dweight, dbias)
}

func (r result) sparse(k *backend, n, c, o, side int) {
	keep := make([]bool, o*c) // by a block's first element
	for i := range keep {
		keep[i] = random.Keyed(7, uint64(i)).IntN(8) == 0
	}
	rows, columns := []int32{0}, []int32(nil)
	for i := range o {
		for j := range c {
			if keep[i/side*side*c+j/side*side] {
				columns = append(columns, int32(j))
			}
		}
		rows = append(rows, int32(len(columns)))
	}
	w := kernel.CSR{Rows: o, Cols: c, NNZ: len(columns), Blocks: side == kernel.Block, RowPtr: mem(rows), ColIdx: mem(columns), Values: mem(normal(8, len(columns)))}
	inp, dout, bias := normal(1, n*c), normal(3, n*o), normal(4, o)
	out, dinp, dvalues, dbias := make([]float32, n*o), make([]float32, n*c), normal(9, len(columns)), normal(6, o)
	k.SpMMForward(nil, mem(out), mem(inp), w, mem(bias), n)
	r.add(fmt.Sprint("SpMMForward by ", side), out)
	k.SpMMBackwardInput(nil, mem(dinp), mem(dout), w, n)
	r.add(fmt.Sprint("SpMMBackwardInput by ", side), dinp)
	k.SDDMM(nil, mem(dvalues), mem(dbias), mem(dout), mem(inp), w, n)
	r.add(fmt.Sprint("SDDMM by ", side), dvalues, dbias)
}

func (r result) blocks(k *backend, b, t, c, nh int) {
	n := b * t
	qkv, dout, out, lse, dqkv := normal(1, 3*n*c), normal(2, n*c), make([]float32, n*c), make([]float32, n*nh), make([]float32, 3*n*c)
	uneven := []int32{0} // offsets: sequences that grow shorter, the last with what is left
	for i := range b {
		uneven = append(uneven, min(uneven[i]+int32(t-2*i), int32(n)))
	}
	uneven[b] = int32(n)
	for name, offsets := range map[string]tensor.Mem{"": even(b, t), " of uneven sequences": mem(uneven)} {
		k.AttentionForward(nil, mem(out), mem(lse), mem(qkv), offsets, b, n, n, c, nh, nh)
		r.add("AttentionForward"+name, out, lse)
		k.AttentionBackward(nil, mem(dqkv), mem(dout), mem(qkv), mem(out), mem(lse), offsets, b, n, n, c, nh, nh)
		r.add("AttentionBackward"+name, dqkv)

		const buckets = 4
		order, starts, pairs := make([]int32, 2*nh*n), make([]int32, b*nh*2*(buckets+1)), make([]float64, 2)
		h := kernel.Buckets{Count: buckets, Order: mem(order), Starts: mem(starts)}
		k.AttentionHash(nil, h, mem(pairs), mem(qkv), offsets, mem(normal(3, c*buckets/2)), b, n, n, c, nh)
		r.add("AttentionHash"+name, order, starts, pairs)
		k.SparseAttentionForward(nil, mem(out), mem(lse), mem(qkv), offsets, h, b, n, n, c, nh)
		r.add("SparseAttentionForward"+name, out, lse)
		k.SparseAttentionBackward(nil, mem(dqkv), mem(dout), mem(qkv), mem(out), mem(lse), offsets, h, b, n, n, c, nh)
		r.add("SparseAttentionBackward"+name, dqkv)
	}

	inp, weight, bias, mean, rstd := normal(3, n*c), normal(4, c), normal(5, c), make([]float32, n), make([]float32, n)
	dinp, dweight, dbias := normal(6, n*c), normal(7, c), normal(8, c)
	k.NormForward(nil, mem(out), mem(mean), mem(rstd), mem(inp), mem(weight), mem(bias), n, c, 1e-5)
	r.add("NormForward", out, mean, rstd)
	k.NormBackwardInput(nil, mem(dinp), mem(dout), mem(inp), mem(mean), mem(rstd), mem(weight), n, c)
	r.add("NormBackwardInput", dinp)
	k.NormBackwardWeight(nil, mem(dweight), mem(dbias), mem(dout), mem(inp), mem(mean), mem(rstd), n, c)
	r.add("NormBackwardWeight", dweight, dbias)
}

func (r result) ends(k *backend, b, t, c, v int) {
	n, draw := b*t, random.Keyed(10)
	tokens, positions := make([]int32, n), make([]int32, n)
	for i := range tokens {
		positions[i] = int32(i % t)
		tokens[i] = draw.Int32N(int32(v))
	}
	out, dwte, dwpe := make([]float32, n*c), normal(1, v*c), normal(2, t*c)
	k.EmbeddingForward(nil, mem(out), mem(tokens), mem(positions), mem(normal(3, v*c)), mem(normal(4, t*c)), n, c)
	r.add("EmbeddingForward", out)
	k.EmbeddingBackward(nil, mem(dwte), mem(dwpe), mem(normal(5, n*c)), mem(tokens), mem(positions), n, c)
	r.add("EmbeddingBackward", dwte, dwpe)

	left, right := normal(6, n*v), normal(7, n*v)
	before, stats, loss := make([]float64, 3*n), make([]float64, 3*n), make([]float64, 1)
	k.SoftmaxMerge(nil, mem(before), tensor.Mem{}, mem(left), mem(tokens), n, v, 0)
	k.CrossEntropy(nil, mem(loss), mem(stats), mem(before), mem(right), mem(tokens), 0.5, n, v, v)
	k.SoftmaxGradient(nil, mem(left), mem(stats), mem(tokens), 0.5, n, v, 0)
	r.add("SoftmaxMerge", before)
	r.add("CrossEntropy", loss, stats, right)
	r.add("SoftmaxGradient", left)
}

func (r result) elements(k *backend, n int) {
	x, y, out := normal(1, n), normal(2, n), make([]float32, n)
	k.Add(nil, mem(out), mem(x), mem(y), n)
	r.add("Add", out)
	k.GELUForward(nil, mem(out), mem(x), n)
	r.add("GELUForward", out)
	k.GELUBackward(nil, mem(out), mem(x), mem(y), n)
	r.add("GELUBackward", out)

	w, m, v, sum := normal(3, n), normal(4, n), make([]float32, n), make([]float64, kernel.SquareBlocks(n))
	k.AdamW(nil, mem(w), tensor.Mem{}, mem(m), mem(v), mem(x), n, kernel.AdamW{LR: 0.1, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Decayed: n - 3, GradScale: 0.5, Step: 3})
	r.add("AdamW", w, m, v)
	k.SumSquares(nil, mem(sum), mem(x), n)
	r.add("SumSquares", sum)

	mask, hist, draw := make([]uint64, (n+63)/64), make([]int64, 256), random.Keyed(11)
	for i := range mask {
		mask[i] = draw.Uint64() | draw.Uint64()
	}
	k.MagnitudeHistogram(nil, mem(hist), mem(x), tensor.Mem{}, n, 0, 0)
	k.MagnitudeHistogram(nil, mem(hist), mem(x), mem(mask), n, 0x3f, 8)
	r.add("MagnitudeHistogram", hist)
	k.Mask(nil, mem(x), mem(mask), n)
	r.add("Mask", x)
}

// TestThreadsChangeNoBit makes every call with one thread and with more threads than this machine
// may have. Some shapes are shared out to threads, some are not.
func TestThreadsChangeNoBit(t *testing.T) {
	eachPath(t, func(t *testing.T, one *backend) {
		for _, shape := range [][6]int{
			{1, 7, 9, 3, 5, 11}, {3, 65, 516, 12, 385, 301}, {1, 257, 129, 1, 1025, 67}, {5, 33, 192, 8, 577, 2000},
		} {
			b, s, c, nh, o, v := shape[0], shape[1], shape[2], shape[3], shape[4], shape[5]
			want := calls(one, b, s, c, nh, o, v)
			for _, threads := range []int{2, 3, 4} {
				k := open(t, one.path, threads)
				for call, got := range calls(k, b, s, c, nh, o, v) {
					if !slices.Equal(got, want[call]) {
						t.Errorf("%s at %v: other bits with %d threads than with one", call, shape, threads)
					}
				}
			}
		}
	})
}

// TestThreadsWithOtherKernels is TestThreadsOfProducts with kernels of OpenBLAS
// whose sums follow where an element lies in a product, unlike some others'. A
// BLAS that is not OpenBLAS takes no notice.
func TestThreadsWithOtherKernels(t *testing.T) {
	if !slices.Contains(availablePaths(), "avx2") {
		t.Skip("the processor lacks AVX2")
	}
	for _, core := range []string{"Haswell", "Zen"} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestThreadsOfProducts$")
		cmd.Env = append(os.Environ(), "OPENBLAS_CORETYPE="+core)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", core, err, out)
		}
	}
}

// TestThreadsOfProducts is the products' part, at shapes of GPT-2 124M; with
// DYNMO_LONG=1 at all of them, and with four threads.
func TestThreadsOfProducts(t *testing.T) {
	path := availablePaths()[len(availablePaths())-1]
	shapes, most := [][3]int{{256, 768, 768}, {256, 768, 3072}, {255, 3072, 768}, {1100, 768, 768}}, 3
	if os.Getenv("DYNMO_LONG") == "1" {
		shapes, most = append(shapes, [3]int{256, 768, 2304}), 4
	}
	for _, shape := range shapes {
		want := result{}
		want.products(open(t, path, 1), shape[0], shape[1], shape[2])
		for threads := 2; threads <= most; threads++ {
			got := result{}
			got.products(open(t, path, threads), shape[0], shape[1], shape[2])
			for call := range want {
				if !slices.Equal(got[call], want[call]) {
					t.Errorf("%s at %v: other bits with %d threads than with one", call, shape, threads)
				}
			}
		}
	}
}

// TestBackendsShareNothing runs ranks at once, as goroutines of one process do,
// some of them with threads of their own.
func TestBackendsShareNothing(t *testing.T) {
	path := availablePaths()[len(availablePaths())-1]
	want := calls(open(t, path, 1), 2, 70, 132, 3, 130, 300)
	var ranks sync.WaitGroup
	for rank := range 6 {
		k := open(t, path, 1+rank%3)
		ranks.Go(func() {
			for range 10 {
				for call, got := range calls(k, 2, 70, 132, 3, 130, 300) {
					if !slices.Equal(got, want[call]) {
						t.Errorf("rank %d: %s: other bits among others than alone", rank, call)
					}
				}
			}
		})
	}
	ranks.Wait()
}

// TestThreadsSleep: between calls the threads of a backend cost nothing; and
// they end with it. The least of several measurements counts: Go's own threads may be at work.
func TestThreadsSleep(t *testing.T) {
	const threads, n = 4, 1 << 18
	before := osThreads(t)
	k, err := newBackend(availablePaths()[0], threads)
	expect.OK(t, err)
	if now := osThreads(t); now < before+threads-1 {
		t.Errorf("%d threads, want %d more than %d", now, threads-1, before)
	}
	x, y, out := mem(normal(1, n)), mem(normal(2, n)), mem(make([]float32, n))
	for range 10 {
		k.Add(nil, out, x, y, n)
		time.Sleep(time.Millisecond) // so that some calls find the others asleep
	}
	least := time.Hour
	for tries := 0; least > 20*time.Millisecond && tries < 20; tries++ {
		used := cpuTime(t, unix.CLOCK_PROCESS_CPUTIME_ID)
		time.Sleep(100 * time.Millisecond)
		least = min(least, cpuTime(t, unix.CLOCK_PROCESS_CPUTIME_ID)-used)
	}
	if least > 20*time.Millisecond {
		t.Errorf("%v of CPU time in 100 ms without a call", least)
	}
	with := osThreads(t)
	k.Close()
	for deadline := time.Now().Add(time.Second); osThreads(t) > with-(threads-1); { // a joined thread is on its way out
		if time.Now().After(deadline) {
			t.Fatalf("%d threads after Close, %d before: want %d fewer", osThreads(t), with, threads-1)
		}
	}
}

// osThreads counts the threads of the process.
func osThreads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	return len(tasks)
}

func cpuTime(t *testing.T, of int32) time.Duration {
	t.Helper()
	var ts unix.Timespec
	expect.OK(t, unix.ClockGettime(of, &ts))
	return time.Duration(ts.Nano())
}

// TestOneThreadStaysOnTheCaller: virtual time is the caller's CPU time, so no
// other thread may do a rank's work.
func TestOneThreadStaysOnTheCaller(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k := open(t, availablePaths()[0], 1)
	const n, c, o = 256, 768, 768
	inp, weight, out := mem(normal(1, n*c)), mem(normal(2, o*c)), mem(make([]float32, n*o))
	runtime.GC()
	for at := time.Duration(0); ; { // until the collector's threads rest, and those of BLAS, which look for work for a while
		was := at
		time.Sleep(20 * time.Millisecond)
		if at = cpuTime(t, unix.CLOCK_PROCESS_CPUTIME_ID); at-was < time.Millisecond {
			break
		}
	}
	process, thread := cpuTime(t, unix.CLOCK_PROCESS_CPUTIME_ID), cpuTime(t, unix.CLOCK_THREAD_CPUTIME_ID)
	for range 40 {
		k.MatmulForward(nil, out, inp, weight, tensor.Mem{}, n, c, o)
		k.GELUForward(nil, out, inp, n*c)
	}
	thread, process = cpuTime(t, unix.CLOCK_THREAD_CPUTIME_ID)-thread, cpuTime(t, unix.CLOCK_PROCESS_CPUTIME_ID)-process
	if thread < process*9/10 {
		t.Errorf("the calling thread did %v of %v of CPU time", thread, process)
	}
}
