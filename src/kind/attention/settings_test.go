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
