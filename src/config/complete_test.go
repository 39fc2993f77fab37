package config

import (
	"slices"
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	for _, c := range []struct {
		word string
		want []string
	}{
		{"balance.k", []string{"balance.kind="}},
		{"parallel.s", []string{"parallel.stages="}},
		{"mesh", []string{"mesh.order="}},
		{"nothing", nil},
		{"nothing.at=", nil},
		{"balance.kind=p", []string{"balance.kind=param", "balance.kind=partition"}},
		{"model.tied=", []string{"model.tied=true", "model.tied=false"}},
		{"train.steps=", []string{"train.steps=100"}},
		{"balance.every=", []string{"balance.every=auto"}},
		{"data.path=", nil},
	} {
		var got []string
		for _, f := range Complete(c.word) {
			got = append(got, f.Text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.word, got, c.want)
		}
	}
}

// Every value that is offered is one that is taken.
func TestCompleteOffersWhatLoadTakes(t *testing.T) {
	for _, key := range Complete("") {
		if key.Meaning == "" {
			t.Errorf("%s means nothing", key.Text)
		}
		for _, v := range Complete(key.Text) {
			if _, err := Load("", []string{v.Text}); err != nil && strings.Contains(err.Error(), "--set: "+strings.Replace(v.Text, "=", " = ", 1)+": wanted ") {
				t.Errorf("%s: %v", v.Text, err)
			}
		}
	}
}
