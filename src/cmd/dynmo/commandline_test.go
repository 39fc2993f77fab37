package main

import "testing"

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"dynmo", "train", "jobs/a.toml", "--set", "run.seed=3"}, "dynmo train jobs/a.toml --set run.seed=3"},
		{[]string{"--set", "run.name=two words", ""}, "--set 'run.name=two words' ''"},
		{[]string{"it's", "$HOME", "a|b"}, `'it'\''s' '$HOME' 'a|b'`},
	} {
		if got := commandLine(c.words); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
