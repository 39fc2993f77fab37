package main

import (
	"strings"
	"testing"
)

// TestCompletion asks for completions as the scripts of shells do. The answer has words, or endings
// of files, then a line with a colon and a directive for the shell.
func TestCompletion(t *testing.T) {
	const (
		noFiles = ":4"
		endings = ":8"
		dirs    = ":16"
		files   = ":0"
	)
	for _, c := range []struct {
		line string // words, and last the word to complete
		want []string
		not  []string
		then string
	}{
		{"train --set balance.", []string{"balance.kind=\twhat decides the cuts", "balance.every="}, []string{"run.name="}, ":6"},
		{"train x.toml --set schedule.kind=zb", []string{"schedule.kind=zb-h1", "schedule.kind=zb-v"}, []string{"schedule.kind=gpipe"}, noFiles},
		{"plan --set model.weights=", nil, nil, files},
		{"simulate --dynamic ", []string{"all", "prune", "mod"}, nil, noFiles},
		{"simulate --costs ", []string{"json", "jsonl"}, nil, endings},
		{"balance --balancer diff", []string{"diffusion", "diffusion-paper"}, nil, noFiles},
		{"data prepare --format ", []string{"llmc", "megatron"}, nil, noFiles},
		{"data prepare --tokenizer ", []string{"gpt2", "sentencepiece"}, []string{"bytes"}, files},
		{"sample --tokenizer ", []string{"gpt2", "bytes"}, []string{"sentencepiece"}, files},
		{"ckpt export --model-type ", []string{"mistral", "mixtral", "llama_moe"}, nil, noFiles},
		{"plan ", []string{"toml"}, nil, endings},
		{"table run/a ", nil, nil, dirs},
		{"doctor --require ", []string{"mpi", "nccl"}, nil, noFiles},
		{"pro", []string{"profile"}, []string{"plan"}, noFiles},
		{"bench schedule --clock ", []string{"wall", "virtual"}, nil, noFiles},
	} {
		args := strings.Split(c.line, " ")
		e := says(append([]string{"__complete"}, args...)...)
		lines := strings.Split(strings.TrimSpace(e.stdout), "\n")
		has := func(want string) bool {
			for _, line := range lines {
				if word, _, _ := strings.Cut(line, "\t"); word == want || strings.Contains(want, "\t") && strings.HasPrefix(line, want) {
					return true
				}
			}
			return false
		}
		for _, want := range c.want {
			if !has(want) {
				t.Errorf("%q: no %q in %q", c.line, want, lines)
			}
		}
		for _, not := range c.not {
			if has(not) {
				t.Errorf("%q: %q in %q", c.line, not, lines)
			}
		}
		if got := lines[len(lines)-1]; got != c.then {
			t.Errorf("%q: then %s, want %s", c.line, got, c.then)
		}
	}
}
