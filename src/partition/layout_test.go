package partition

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

func TestParseLayout(t *testing.T) {
	for _, c := range []struct {
		name, text               string
		blocks, perBlock, slices int
		want                     Partition
	}{
		{"one stage", "EtL", 1, 1, 1, Partition{0, 3}},
		{"plain", "Et|t|ttL", 4, 1, 1, Partition{0, 2, 3, 6}},
		{"groups", "Et|t*3|(tt|)*2tL", 9, 1, 1, Partition{0, 2, 5, 7, 9, 11}},
		{"groups in groups", "E(t(t|)*2)*2tL", 7, 1, 1, Partition{0, 3, 4, 6, 7, 9}},
		{"commas and spaces", " E , t|,t L", 2, 1, 1, Partition{0, 2, 4}},
		{"half grain, sliced head", "Et|tL", 2, 2, 4, Partition{0, 3, 9}},
		{"embedding and head alone", "E|t*4|L", 4, 1, 2, Partition{0, 1, 5, 7}},
		{"Megatron-LM's DeepSeek-V3 without m", "Et*3|(tt|)*29L", 61, 1, 1, megatron()},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseLayout(c.text, c.blocks, c.perBlock, c.slices)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func megatron() Partition {
	p := Partition{0}
	for l := 4; l <= 62; l += 2 {
		p = append(p, l)
	}
	return append(p, 63)
}

func TestParseLayoutRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "no L at the end"},
		{"no embedding", "t|t*3L", "position 1: t, want E first"},
		{"embedding twice", "Et|Et*3L", "position 4: E again"},
		{"too few blocks", "Et|ttL", "position 6: L after 3 t, want 4"},
		{"too many blocks", "Et|t*3|tL", "position 8: one t more than the 4 blocks"},
		{"too many by repetition", "E|t*5L", "position 3: one t more than the 4 blocks"},
		{"no head", "Et|t*3", "no L at the end"},
		{"head first", "EL|t*4", "position 2: L after 0 t, want 4"},
		{"after the head", "Et|t*3L|t", "position 9: t after L, want L last"},
		{"empty stage", "Et||t*3L", "position 4: a stage without layers"},
		{"empty stage behind a group", "Et|(t|)*3|L", "position 10: a stage without layers"},
		{"empty last stage", "Et*4L|", "behind the last |"},
		{"empty first stage", "|Et*4L", "position 1: |, want E first"},
		{"other symbol", "Et*3,m|tL", "position 6: 'm', want E, t, L"},
		{"beyond ASCII", "Eτ*4L", "position 2: 'τ', want"},
		{"open", "E(t*4L", "position 2: ( without )"},
		{"closed", "Et*4)L", "position 5: ) without ("},
		{"nothing to repeat", "*4EtL", "position 1: * without a symbol"},
		{"twice repeated", "Et*2*2L", "position 5: * without a symbol"},
		{"not how often", "Et*L", "position 3: *, want a count from 1 to 12"},
		{"never", "Et*0L", "position 3: *0, want a count from 1 to 12"},
		{"huge", "Et*1000000000000L", "position 3: *1000000000000, want a count from 1 to 12"},
		{"beyond integers", "Et*99999999999999999999L", "want a count from 1 to 12"},
		{"huge in turns", "E(((t*9)*9)*9)*9L", "position 9: *9 makes more than 12 symbols"},
		{"huge in full", strings.Repeat("E", 99), "position 13: more than 12 symbols"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseLayout(c.text, 4, 1, 1)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want …%s…", got, err, c.want)
			}
		})
	}
}

func TestFormatLayout(t *testing.T) {
	for _, c := range []struct {
		name     string
		cuts     Partition
		perBlock int
		want     string // layout, or part of the error
	}{
		{"plain", Partition{0, 2, 5, 7, 9, 11}, 1, "Et|t*3|tt|tt|tL"},
		{"half grain", Partition{0, 1, 9, 11}, 2, "E|t*4|L"},
		{"inside a block", Partition{0, 2, 11}, 2, "stage 1 begins inside a block"},
		{"inside the head", Partition{0, 10, 11}, 2, "stage 1 begins inside the head"},
		{"empty stage", Partition{0, 2, 2, 11}, 1, "gives stage 1 0 layers"},
		{"another chain", Partition{0, 2, 12}, 1, "does not cover"},
	} {
		t.Run(c.name, func(t *testing.T) {
			blocks, slices := 9, 1
			if c.perBlock == 2 {
				blocks, slices = 4, 2
			}
			got, err := FormatLayout(c.cuts, blocks, c.perBlock, slices)
			if err != nil {
				got = err.Error()
			}
			if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLayoutRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)) // fixed seed: a failure must repeat
	for range 500 {
		blocks, perBlock, shards := 1+rnd.IntN(12), 1+rnd.IntN(2), 1+rnd.IntN(3)
		cuts := Partition{0}
		for b := range blocks + 1 {
			if rnd.IntN(3) == 0 {
				cuts = append(cuts, 1+b*perBlock)
			}
		}
		cuts = append(cuts, 1+blocks*perBlock+shards)
		text, err := FormatLayout(cuts, blocks, perBlock, shards)
		expect.OK(t, err)
		if got, err := ParseLayout(text, blocks, perBlock, shards); err != nil || !slices.Equal(got, cuts) {
			t.Fatalf("%s: got %v, %v, want %v", text, got, err, cuts)
		}
	}
}

// FuzzParseLayout: every accepted layout gives cuts that can be written and read again.
func FuzzParseLayout(f *testing.F) {
	for _, text := range []string{"EtL", "Et|t*3|(tt|)*2|tL", "E(((t*9)*9)*9)*9L", "Et||t*3L", "E(t(t|)*2)*2tL", "*", ")("} {
		f.Add(text, 7, 1, 1)
	}
	f.Fuzz(func(t *testing.T, text string, blocks, perBlock, shards int) {
		if min(blocks, perBlock, shards) < 1 || max(blocks, perBlock, shards) > 100 {
			return
		}
		cuts, err := ParseLayout(text, blocks, perBlock, shards)
		if err != nil {
			return
		}
		expect.OK(t, cuts.Check(1+blocks*perBlock+shards, cuts.Stages(), true))
		plain, err := FormatLayout(cuts, blocks, perBlock, shards)
		expect.OK(t, err)
		if again, err := ParseLayout(plain, blocks, perBlock, shards); err != nil || !slices.Equal(again, cuts) {
			t.Fatalf("%q, then %q: %v, %v, want %v", text, plain, again, err, cuts)
		}
	})
}
