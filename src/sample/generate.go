package sample

import "context"

// Generation is a text to go on with.
type Generation struct {
	Prompt  []int32 // at least one token, no more than the model's sequence
	Tokens  int     // how many to add
	Vocab   int     // tokens below it are chosen from; those above have no text
	End     int32   // the token that ends a text, and is not yielded; -1 if there is none
	Choice  Choice
	Leaving *Leaving // when tokens leave; nil: none leaves
	Text    []int32  // the tokens to add, Tokens of them, whatever the model finds; nil: those that it chooses
	Trace   *Trace   // of the generation, to fill; nil: none is wanted
}

// Trace is what a model found.
type Trace struct {
	Best   []int32 // of each token that was chosen: the most probable
	Blocks int     // sum, over these tokens, of the blocks that found them
}

// Generate calls yield with one token after the other until there are enough, the
// text ends, or ctx or yield does. Where the text has as many tokens as the model has
// positions, the model goes on from the last half of them; slide is called the first time.
// Errors: yield's, ctx's cause, or logits that are not finite.
func (m *Model) Generate(ctx context.Context, g Generation, yield func(token int32) error, slide func()) error {
	s, chooser, greedy := m.NewSession(len(g.Prompt)+g.Tokens, g.Leaving), g.Choice.New(), Choice{TopP: 1}.New()
	s.prompt, s.added = len(g.Prompt), g.Tokens
	text := append([]int32(nil), g.Prompt...)
	slid := false
	fed := 0 // tokens of text that the session was fed
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
		logits := s.Feed(text[fed:]...)
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
		case token == g.End:
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
