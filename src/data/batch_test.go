package data

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// counting returns a corpus whose byte at offset i is i, below 256.
func counting(n int) *Corpus {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte(i)
	}
	return newCorpus(content{newPart(ids{text, u8})}, func() error { return nil })
}

func TestTargetsAreTheNextTokens(t *testing.T) {
	c := counting(200)
	const size, sequence = 50, 17
	tokens, targets := c.Batches(size, sequence).Read(1, 2, 3)
	if len(tokens) != size*sequence || len(targets) != size*sequence {
		t.Fatalf("%d tokens and %d targets, want %d of each", len(tokens), len(targets), size*sequence)
	}
	for i := range tokens {
		if targets[i] != tokens[i]+1 {
			t.Fatalf("target %d of token %d at %d", targets[i], tokens[i], i)
		}
		if i%sequence > 0 && tokens[i] != tokens[i-1]+1 {
			t.Fatalf("sequence breaks at %d: %d, %d", i, tokens[i-1], tokens[i])
		}
	}
}

func TestBatchReachesTheWholeText(t *testing.T) {
	c := counting(20)
	const sequence = 16 // starts 0 to 3
	seen := make([]int, 4)
	batches := c.Batches(4, sequence)
	for step := range 1000 {
		tokens, _ := batches.Read(1, step, 0)
		for i := 0; i < len(tokens); i += sequence {
			seen[tokens[i]]++
		}
	}
	for start, n := range seen {
		if n < 900 || n > 1100 { // 4000 draws of 4: mean 1000, deviation 27
			t.Errorf("start %d drawn %d times of 4000, want about 1000", start, n)
		}
	}
}

func TestBatchIsAPureFunctionOfItsKey(t *testing.T) {
	c := counting(256)
	first := func(seed uint64, step, microbatch int) []int32 {
		tokens, _ := c.Batches(8, 8).Read(seed, step, microbatch)
		return tokens
	}
	want := first(1, 2, 3)
	for _, key := range [][3]int{{2, 2, 3}, {1, 3, 3}, {1, 2, 4}, {1, 3, 2}, {2, 1, 3}} {
		if slices.Equal(first(uint64(key[0]), key[1], key[2]), want) {
			t.Errorf("key %v draws the batch of key [1 2 3]", key)
		}
	}
	if !slices.Equal(first(1, 2, 3), want) {
		t.Error("the same key draws another batch later")
	}
}

// The samples of a seed are part of a run's identity: a change here makes
// every recorded loss curve another one.
func TestSamplesOfASeedStayTheSame(t *testing.T) {
	c := counting(256)
	tokens, _ := c.Batches(6, 1).Read(1, 0, 0)
	if want := []int32{248, 160, 14, 244, 219, 128}; !slices.Equal(tokens, want) {
		t.Errorf("offsets %v, want %v", tokens, want)
	}
}

func TestTheShortestCorpusHasOneSequence(t *testing.T) {
	dir := expect.Tree(t, map[string]string{"a.go": strings.Repeat("x", 8) + "y"})
	c, err := Open(config.Data{Path: dir}, 256, 8)
	expect.OK(t, err)
	tokens, targets := c.Batches(1, 8).Read(1, 0, 0)
	if tokens[0] != 'x' || targets[7] != 'y' {
		t.Errorf("tokens %v, targets %v", tokens, targets)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	b := counting(256).Batches(3, 8)
	if n := testing.AllocsPerRun(10, func() { b.Read(1, 2, 3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestJoined: a microbatch that is drawn as several of them has their sequences in order.
func TestJoined(t *testing.T) {
	c := counting(200)
	for _, joined := range []int{1, 2, 3} {
		small, large := c.Batches(2, 5), c.Joined(joined, 2, 5)
		for m := range 4 {
			tokens, targets := large.Read(7, 3, m)
			for i := range joined {
				wantTokens, wantTargets := small.Read(7, 3, m*joined+i)
				if !slices.Equal(tokens[i*10:][:10], wantTokens) || !slices.Equal(targets[i*10:][:10], wantTargets) {
					t.Errorf("microbatch %d of %d joined: part %d differs", m, joined, i)
				}
			}
		}
	}
}
