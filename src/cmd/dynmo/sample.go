package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"dynmo/src/dynamic"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cpu"
	"dynmo/src/model"
	"dynmo/src/sample"
	"dynmo/src/tokenizer"
	"dynmo/src/weights"
)

// sampling holds the flags of dynmo sample.
type sampling struct {
	prompt, tokenizer string
	tokens, threads   int
	choice            sample.Choice
	json              bool

	threshold, decay float64 // of exits
	compare          bool
}

// sampleCommand returns the command that continues a text with a model.
func sampleCommand() *cobra.Command {
	var s sampling
	c := &cobra.Command{
		Use:   "sample DIR|RUN_DIR|FILE",
		Short: "Continue a text with a model, on the CPU",
		Long: `Continue a text with a model, on the CPU of this machine. The model is a Hugging Face
directory of a GPT-2, a LLaMA or a Mixtral, as ckpt export makes them, the newest checkpoint of
a run, or a dynmo weights file. No MPI and no GPU are needed. In training, experts with
moe.balance = s-base are chosen by all tokens of a microbatch. Here each token chooses by
itself, and a note says so. A mixture of depths takes tokens by its predictor, or else by its
router's learned threshold, and a note says so.

Every token is drawn from softmax(logits / temperature): of its --top-k most probable tokens,
and of these the fewest whose probabilities sum to --top-p. --temperature 0 always takes the
most probable. Equal seeds give equal texts, with any number of threads.

Tokens of a model with exits leave at the first exit whose confidence in them is above its
threshold: the threshold of training, or --exit-threshold L. With --exit-decay T the threshold
of the t-th of N tokens is 0.9 L + 0.1 exp(-T t/N), between 0 and 1 (Schuster et al. 2022,
equation 5; their T is 4). Later blocks compute keys and values from the last state of a token
that left. --compare also gives the text to all blocks, and prints how often both find the same
token most probable. A model with attention in buckets draws its hash vectors once for a text.

A text may become longer than the model's context. A note says so once, and the model then
continues from the last half of its context. A prompt may not be longer. Where the model ends
the text, the text ends. Without --prompt the model begins one.

The tokenizer is that of the directory, of the import of a weights file, or of a run. A directory
has tokenizer.json of a byte-pair encoding (byte-level, cutting texts as GPT-2 or Llama 3 do, or
with byte fallback, as those of LLaMA 2 and Mixtral), sentencepiece's tokenizer.model, or
vocab.json and merges.txt. A run has bytes if it trained on text, else the tokenizer of data
prepare. If none is known, a vocabulary of 50257 tokens, padded or not, counts as GPT-2's, and
any other of a file as bytes.

In a prompt the name of a special token is this token, with every tokenizer but bytes, which
have none. Special are <|endoftext|> of GPT-2, added_tokens of tokenizer.json, the control
pieces and the unknown piece of tokenizer.model, and each token of the vocabulary that
tokenizer_config.json or special_tokens_map.json names. A normalized token of tokenizer.json
is found as its normalizer writes it: with ▁ before a text, only after a space.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return usageError{err}
			}
			return s.run(c, args[0])
		},
	}
	f := c.Flags()
	f.StringVar(&s.prompt, "prompt", "", "text to go on with")
	f.IntVar(&s.tokens, "tokens", 100, "tokens to add at most, 1 to 1000000")
	f.Float64Var(&s.choice.Temperature, "temperature", 0.8, "0 takes the most probable token, 1 draws as the model says")
	f.IntVar(&s.choice.TopK, "top-k", 0, "draw from this number of the most probable tokens; 0 is all")
	f.Float64Var(&s.choice.TopP, "top-p", 1, "draw from the most probable of this share, above 0 and at most 1")
	f.Uint64Var(&s.choice.Seed, "seed", 1, "of the draws")
	f.IntVar(&s.threads, "threads", runtime.GOMAXPROCS(0), "threads that share the arithmetic, 1 to 1024")
	f.StringVar(&s.tokenizer, "tokenizer", "", "bytes, gpt2, or a tokenizer's directory or file: "+tokenizerKinds)
	f.Float64Var(&s.threshold, "exit-threshold", 0, "confidence above which tokens leave at every exit, -1 to 2 (default that of training)")
	f.Float64Var(&s.decay, "exit-decay", 0, "how fast thresholds of exits fall; 0: not")
	f.BoolVar(&s.compare, "compare", false, "compare a model with exits with the same model without")
	f.BoolVar(&s.json, "json", false, "answer in JSON, when the text is whole")
	return c
}

// check refuses flags out of their range.
func (s *sampling) check() error {
	c := s.choice
	for _, f := range []struct {
		ok   bool
		flag string
		got  any
		want string
	}{
		{s.tokens >= 1 && s.tokens <= mostCount, "tokens", s.tokens, fmt.Sprint("1 to ", mostCount)},
		{s.threads >= 1 && s.threads <= mostThreads, "threads", s.threads, fmt.Sprint("1 to ", mostThreads)},
		{c.Temperature >= 0 && c.Temperature <= 1e6, "temperature", c.Temperature, "0 to 1e6"},
		{c.TopK >= 0, "top-k", c.TopK, "at least 0"},
		{c.TopP > 0 && c.TopP <= 1, "top-p", c.TopP, "above 0, at most 1"},
		{s.threshold >= -1 && s.threshold <= 2, "exit-threshold", s.threshold, "-1 to 2"},
		{s.decay >= 0 && s.decay <= 1e6, "exit-decay", s.decay, "0 to 1e6"},
	} {
		if !f.ok {
			return fmt.Errorf("--%s %v: want %s", f.flag, f.got, f.want)
		}
	}
	return nil
}

// sampled is the output of dynmo sample in JSON.
type sampled struct {
	Prompt       string  `json:"prompt"`
	Text         string  `json:"text"` // generated text
	PromptTokens int     `json:"prompt_tokens"`
	Tokens       int     `json:"tokens"`
	Seconds      float64 `json:"seconds"` // of all tokens except the first
	TokensPerSec float64 `json:"tokens_per_second"`
	Blocks       float64 `json:"blocks_per_token"` // mean number of blocks that computed a token

	// With --compare: the share of tokens to which the model without exits gives the highest
	// probability too, and the rate of that model.
	Agreement        *float64 `json:"agreement,omitempty"`
	FullTokensPerSec float64  `json:"full_tokens_per_second,omitempty"`
}

// measure sets the speed and the number of blocks of a generation.
func (a *sampled) measure(t *sample.Trace, seconds float64) {
	a.Seconds, a.TokensPerSec = seconds, speed(a.Tokens, seconds)
	a.Blocks = float64(t.Blocks) / float64(max(1, len(t.Best)))
}

// speed returns tokens per second, without the first token, which waits for the prompt.
func speed(tokens int, seconds float64) float64 {
	if tokens < 2 {
		return 0
	}
	return float64(tokens-1) / seconds
}

// summary describes the speed of a model whose work depends on tokens.
func (a *sampled) summary(m *sample.Model) string {
	text := fmt.Sprintf("%.1f tokens/s, %.2f of %d blocks per token", a.TokensPerSec, a.Blocks, m.Config.Blocks)
	if a.Agreement != nil {
		text += fmt.Sprintf("; without exits %.1f tokens/s, and the most probable token is the same for %s of %d",
			a.FullTokensPerSec, dynamic.Percent(*a.Agreement), a.Tokens)
	}
	return text
}

func (s *sampling) run(c *cobra.Command, path string) error {
	o, err := openModel(c, path)
	if err != nil {
		return usageError{err}
	}
	w := o.weights
	defer w.Close()
	if err := sample.Knows(w.Config.Model); err != nil {
		return usageError{fmt.Errorf("%s: %w", path, err)}
	}
	for _, note := range sample.Notes(w.Config.Model) {
		tellNotes(c.ErrOrStderr(), note)
	}
	v, err := s.vocabulary(o)
	if err != nil {
		return usageError{err}
	}
	g := sample.Generation{Tokens: s.tokens, Vocab: min(v.Size(), w.Config.Model.Vocab), Choice: s.choice}
	g.Ends = slices.DeleteFunc(w.Ends(), func(end int32) bool { return int(end) >= g.Vocab })
	if len(g.Ends) == 0 && v.End >= 0 {
		g.Ends = []int32{v.End}
	}
	if g.Leaving, err = s.leaving(c, path, o); err != nil {
		return usageError{err}
	}
	if g.Prompt, err = s.encode(v, w.Config.Model, g.Ends); err != nil {
		return usageError{err}
	}
	k, err := fastKernels(s.threads)
	if err != nil {
		return err
	}
	if k != nil {
		defer k.Close()
	}
	m, err := sample.New(w.Config.Model, s.threads, k, w.Read)
	if err != nil {
		return err
	}
	defer m.Close()
	return s.generate(c, m, v, g)
}

// leaving returns the rule by which tokens leave at exits; nil if the model has no exits.
func (s *sampling) leaving(c *cobra.Command, path string, o origin) (*sample.Leaving, error) {
	if len(o.weights.Thresholds) == 0 {
		for _, flag := range []string{"exit-threshold", "exit-decay", "compare"} {
			if c.Flags().Changed(flag) {
				return nil, fmt.Errorf("--%s: %s has no exits, want a run with exit in dynamic.kind", flag, path)
			}
		}
		return nil, nil
	}
	if c.Flags().Changed("exit-threshold") {
		for i := range o.weights.Thresholds {
			o.weights.Thresholds[i] = s.threshold
		}
	}
	return &sample.Leaving{Thresholds: o.weights.Thresholds, Decay: s.decay}, nil
}

// fastKernels returns the kernels over a BLAS; nil if this binary has none.
func fastKernels(threads int) (kernel.Backend, error) {
	if !cpu.Built {
		return nil, nil
	}
	return cpu.NewForTexts(threads)
}

// openModel opens a model: a Hugging Face directory with its tokenizer, a run's newest checkpoint,
// or a dynmo weights file.
func openModel(c *cobra.Command, path string) (origin, error) {
	if _, err := os.Stat(filepath.Join(path, weights.ConfigFile)); err != nil {
		return openOrigin(c, path, -1)
	}
	w, err := weights.OpenHuggingFace(path)
	if err != nil {
		return origin{}, err
	}
	tellNotes(c.ErrOrStderr(), w.Doubts...)
	o := origin{weights: w}
	o.knows(path, w.Tokenizer)
	return o, nil
}

// vocabulary returns the tokenizer that the flags name, or else the model's.
func (s *sampling) vocabulary(o origin) (*tokenizer.Vocabulary, error) {
	switch {
	case s.tokenizer == "bytes":
		return tokenizer.Bytes(), nil
	case s.tokenizer == gpt2:
		return tokenizer.GPT2Vocabulary(), nil
	case s.tokenizer != "":
		v, err := tokenizer.OpenVocabulary(s.tokenizer)
		if err != nil {
			err = fmt.Errorf("--tokenizer: %w, want bytes, gpt2, or a tokenizer's directory or file: %s", err, tokenizerKinds)
		}
		return v, err
	case o.unknown != nil:
		return nil, fmt.Errorf("%w: want the tokenizer of the model with --tokenizer", o.unknown)
	case o.vocabulary == nil:
		return tokenizer.Bytes(), nil
	}
	return o.vocabulary, nil
}

// tokenizerKinds names the files of tokenizers that can be read.
const tokenizerKinds = "tokenizer.json, tokenizer.model, or vocab.json and merges.txt"

// encode returns the tokens of the prompt. For an empty prompt it returns the token between texts.
func (s *sampling) encode(v *tokenizer.Vocabulary, c model.Config, ends []int32) ([]int32, error) {
	tokens, err := v.Prompt(s.prompt)
	if err != nil {
		return nil, fmt.Errorf("--prompt: %w", err)
	}
	if len(tokens) == 0 {
		if len(ends) == 0 {
			return nil, errors.New("--prompt: the tokenizer has no token that texts begin with, want a text")
		}
		tokens = ends[:1]
	}
	if len(tokens) > c.Sequence {
		return nil, fmt.Errorf("--prompt: %d tokens, the model's context has %d, want at most these", len(tokens), c.Sequence)
	}
	for _, token := range tokens {
		if int(token) >= c.Vocab {
			return nil, fmt.Errorf("--prompt: token %d (%.100q): the model's vocabulary has %d tokens, want the tokenizer it was trained with (--tokenizer)",
				token, v.Text(token), c.Vocab)
		}
	}
	return tokens, nil
}

// generate writes the text while it is generated, or the answer in JSON.
func (s *sampling) generate(c *cobra.Command, m *sample.Model, v *tokenizer.Vocabulary, g sample.Generation) error {
	ctx, stop := interruptible(c.Context())
	defer stop()
	answer := sampled{Prompt: s.prompt, PromptTokens: len(g.Prompt)}
	var text strings.Builder
	out := io.Writer(&text)
	if !s.json {
		out = c.OutOrStdout()
		if term.IsTerminal(int(os.Stdout.Fd())) {
			out = plain{out}
		}
	}
	began := time.Now()
	err := error(nil)
	if !s.json {
		_, err = io.WriteString(out, s.prompt)
	}
	slid := func() {
		tellNotes(c.ErrOrStderr(), fmt.Sprintf("the text is longer than the model's context, %d tokens: it goes on from the last half of that", m.Config.Sequence))
	}
	g.Trace = &sample.Trace{}
	err = cmp.Or(err, m.Generate(ctx, g, func(token int32) error {
		added := v.Text(token)
		g.Text = append(g.Text, token)
		if len(g.Text) == 1 {
			began = time.Now()
			if s.prompt == "" {
				added = v.Opening(token)
			}
		}
		_, err := io.WriteString(out, added)
		return err
	}, slid))
	answer.Tokens = len(g.Text)
	answer.measure(g.Trace, time.Since(began).Seconds())
	if !s.json {
		_, lineErr := io.WriteString(out, "\n")
		err = cmp.Or(err, lineErr)
	}
	if err == nil && s.compare && answer.Tokens > 0 {
		err = answer.compare(ctx, m, g)
	}
	if err != nil {
		return err
	}
	if s.json {
		answer.Text = text.String()
		return json.NewEncoder(c.OutOrStdout()).Encode(answer)
	}
	if m.Config.Beyond() != "" {
		tellNotes(c.ErrOrStderr(), answer.summary(m))
	}
	return nil
}

// compare runs the model without exits on the generated text.
func (a *sampled) compare(ctx context.Context, m *sample.Model, g sample.Generation) error {
	early := g.Trace
	g.Leaving, g.Tokens, g.Trace = nil, len(g.Text), &sample.Trace{}
	var began time.Time
	first := func(int32) error {
		if began.IsZero() {
			began = time.Now()
		}
		return nil
	}
	if err := m.Generate(ctx, g, first, func() {}); err != nil {
		return err
	}
	a.FullTokensPerSec = speed(g.Tokens, time.Since(began).Seconds())
	same := 0.0
	for i, best := range g.Trace.Best {
		if best == early.Best[i] {
			same++
		}
	}
	same /= float64(g.Tokens)
	a.Agreement = &same
	return nil
}

// plain is a writer to a terminal. It writes control characters as Go escapes, because a terminal
// might obey them; tabs and line ends stay.
type plain struct{ io.Writer }

func (w plain) Write(p []byte) (int, error) {
	var b strings.Builder
	for _, x := range p {
		if x < ' ' && x != '\t' && x != '\n' || x == 0x7f {
			fmt.Fprintf(&b, `\x%02x`, x)
			continue
		}
		b.WriteByte(x)
	}
	if _, err := io.WriteString(w.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}
