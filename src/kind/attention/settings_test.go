package attention

import (
	"strings"
	"testing"

	"dynmo/src/config"
)

// TestAttentionInBucketsKeepsAllTokens: sparse attention is refused beside kinds that take
// tokens away.
func TestAttentionInBucketsKeepsAllTokens(t *testing.T) {
	for kind, refused := range map[string]bool{
		"attention+mod": true, "mod+attention": true, "attention+exit": true, "prune+attention+mod": true,
		"exit+mod": false, "prune+mod": false, "attention+prune": false,
	} {
		_, err := config.Load("", []string{"dynamic.kind=" + kind, "prune.start=1"})
		if got := err != nil && strings.Contains(err.Error(), "attention without exit and mod"); got != refused || err != nil && !got {
			t.Errorf("%s: refused %v, want %v (%v)", kind, got, refused, err)
		}
	}
}

// TestSharedKeysBeginAnew: a model whose keys are shared has none to take from a file of another
// program.
func TestSharedKeysBeginAnew(t *testing.T) {
	for keys, refused := range map[string]bool{"shared": true, "own": false} {
		_, err := config.Load("", []string{"dynamic.kind=attention", "model.weights=gpt2", "attention.keys=" + keys})
		if got := err != nil && strings.Contains(err.Error(), `attention.keys = "own" beside model.weights`); got != refused || err != nil && !got {
			t.Errorf("%s: refused %v, want %v (%v)", keys, got, refused, err)
		}
	}
}
