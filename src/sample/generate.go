package sample

import (
	"context"
	"slices"
)

// Generation is a request to continue a text.
type Generation struct {
	Prompt  []int32 // at least one token, at most the model's sequence
	Tokens  int     // number of tokens to add
	Vocab   int     // only tokens below Vocab are chosen, because others have no text
	Ends    []int32 // tokens that end a text, and are not yielded
	Choice  Choice
	Leaving *Leaving // rule by which tokens leave; nil: none leaves
	Text    []int32  // tokens to add in place of chosen ones, `Tokens` of them; nil: the model's tokens are chosen
	Trace   *Trace   // filled during the generation, if not nil
}

// Trace records what the model computed for the chosen tokens.
type Trace struct {
	Best   []int32 // by chosen token: the most probable token
	Blocks int     // sum over chosen tokens of the blocks that computed them
}

// Generate calls yield with each new token. It ends when all tokens are added, the text ends, or
// ctx or yield end it. If the text reaches the model's number of positions, the model continues
// from the last half of its tokens; slide is called the first time. Errors: yield's, ctx's cause,
// of memory, or logits that are not finite.
func (m *Model) Generate(ctx context.Context, g Generation, yield func(token int32) error, slide func()) error {
	s, chooser, greedy := m.NewSession(len(g.Prompt)+g.Tokens, g.Leaving), g.Choice.New(), Choice{TopP: 1}.New()
	defer s.Close()
	s.prompt, s.added = len(g.Prompt), g.Tokens
	text := append([]int32(nil), g.Prompt...)
	slid := false
	fed := 0 // tokens of the text fed to the session
	for i := range g.Tokens {
		if s.Len()+len(text)-fed > m.Config.Sequence {
			if !slid {
				slide()
				slid = true
			}
			s.Reset()
			fed = len(text) - max(1, m.Config.Sequence/2)
			s.first = fed
		}
		logits, err := s.Feed(text[fed:]...)
		if err != nil {
			return err
		}
		fed = len(text)
		token, err := chooser.Next(logits[:g.Vocab])
		if err != nil {
			return err
		}
		if g.Trace != nil {
			best, _ := greedy.Next(logits[:g.Vocab])
			g.Trace.Best, g.Trace.Blocks = append(g.Trace.Best, best), g.Trace.Blocks+s.depth
		}
		if g.Text != nil {
			token = g.Text[i]
		}
		switch {
		case slices.Contains(g.Ends, token):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		text = append(text, token)
		if err := yield(token); err != nil {
			return err
		}
	}
	return nil
}
