package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"dynmo/src/data"
	"dynmo/src/files"
	"dynmo/src/tokenizer"
)

// dataCommand returns the commands that make token files and describe them.
func dataCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "data",
		Short: "Turn text into token files; look into one; its help is on tokenizers and weights, too",
		Long:  page("data"),
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(prepareCommand(), inspectCommand())
	return c
}

func prepareCommand() *cobra.Command {
	p := tokenizer.Preparation{Workers: runtime.GOMAXPROCS(0)}
	var format, name, model string
	var out target
	c := &cobra.Command{
		Use:   "prepare -o OUT.bin INPUT...",
		Short: "Turn texts into a token file",
		Long: `Turn texts into a token file.

An input is a file, a directory, which is read in lexical order, or a pattern. Links are
followed. A text file is a document: its tokens, then the end-of-text token. In JSON lines every
line is a document, the member "text" of its object (--json-key), and in Parquet every row, the
column "text". A file may be compressed with gzip or zstd. Its first bytes tell the format; JSON
lines have an object with the key in their first line, or a name with .jsonl or .ndjson. Text must
be UTF-8, without zero bytes; empty documents are left out. With --format megatron an index,
OUT.idx, lies beside OUT.bin.

--tokenizer gpt2 is GPT-2's byte-pair encoding. Any other is that of a directory, or of a
file: tokenizer.json, as LLaMA, Mixtral and Llama 3 have it, sentencepiece's
tokenizer.model, or vocab.json and merges.txt. Documents begin with the tokens that it sets
before a text, and end with the one that ends texts (eos_token). In a document the name of a
special token is text. The name of any other added token is this token.

--tokenizer sentencepiece takes sentencepiece's model file with --tokenizer-model; there
documents begin with no token. The tokenizer's files are kept beside OUT.bin in OUT.tokenizer,
so that a run on it knows what its tokens are.

To train on the result set data.path = "OUT.bin" and model.vocab to at least
the vocabulary that is printed (GPT-2: 50257; the next multiple of 128 is
50304).`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, inputs []string) error {
			p.Inputs, p.Output, p.Format = inputs, out.path, data.Format(format)
			if p.Format != data.LLMC && p.Format != data.Megatron {
				return usageError{fmt.Errorf("--format %q, want %s or %s", format, data.LLMC, data.Megatron)}
			}
			var err error
			var texts map[string][]byte
			if p.Tokenizer, texts, err = openTokenizer(name, model); err != nil {
				return usageError{err}
			}
			index, err := data.Index(p.Output)
			if err != nil {
				return usageError{err}
			}
			if err := out.check(index); err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			began := time.Now()
			done, err := p.Run(ctx, barOf(c).Show)
			seconds := time.Since(began).Seconds()
			if _, ok := errors.AsType[tokenizer.InputError](err); ok {
				return usageError{err}
			}
			if err = cmp.Or(err, leaveFiles(data.Beside(p.Output), texts, data.IsTokenizerFile)); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d documents, %d bytes, %d tokens, vocabulary %d, %.1f MB/s\n",
				files.Visible(p.Output), done.Documents, done.Bytes, done.Tokens, p.Tokenizer.Vocab, float64(done.Bytes)/1e6/seconds)
			return nil
		},
	}
	out.required(c, "token file to write, OUT.bin")
	c.Flags().StringVar(&name, "tokenizer", gpt2, gpt2+", "+sentencePiece+", or a tokenizer's directory or file")
	c.Flags().StringVar(&model, "tokenizer-model", "", "model file of "+sentencePiece+", as LLaMA's tokenizer.model")
	c.Flags().StringVar(&format, "format", string(data.LLMC), "llmc or megatron")
	c.Flags().StringSliceVar(&p.Keys, "json-key", []string{"text"}, "members of JSON lines, or columns of Parquet, that have the text; several are joined by line feeds")
	c.Flags().StringSliceVar(&p.Extensions, "extensions", nil, "endings of the files to read from directories, as .txt,.md (default all files)")
	return c
}

// Names of tokenizers.
const (
	gpt2          = "gpt2"
	sentencePiece = "sentencepiece"
)

// openTokenizer returns the tokenizer with a name and a model file, or at a path, and its files.
// GPT-2's has no files, because its vocabulary identifies it.
func openTokenizer(name, model string) (t tokenizer.Tokenizer, texts map[string][]byte, err error) {
	fail := func(format string, args ...any) (tokenizer.Tokenizer, map[string][]byte, error) {
		return tokenizer.Tokenizer{}, nil, fmt.Errorf(format, args...)
	}
	switch {
	case name != sentencePiece && model != "":
		return fail("--tokenizer-model %q: %s has no model file, want --tokenizer %s", model, name, sentencePiece)
	case name == gpt2:
		return tokenizer.GPT2(), nil, nil
	case name == sentencePiece && model == "":
		return fail("--tokenizer %s: want its model file, --tokenizer-model FILE", sentencePiece)
	case name == sentencePiece:
		if t, err = tokenizer.OpenSentencePiece(model); err == nil {
			texts, err = tokenizer.ReadFiles(model)
		}
		return t, texts, err
	}
	v, err := tokenizer.OpenVocabulary(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fail("--tokenizer %q: %w, want %s, %s, or a tokenizer's directory or file: %s", name, err, gpt2, sentencePiece, tokenizerKinds)
	}
	if err != nil {
		return fail("--tokenizer: %w", err)
	}
	if t, err = v.Tokenizer(); err != nil {
		return fail("--tokenizer: %s: %w", name, err)
	}
	texts, err = tokenizer.ReadFiles(name)
	return t, texts, err
}

// tokenFile describes a token file.
type tokenFile struct {
	Format    data.Format `json:"format"`
	Type      string      `json:"dtype"`
	Tokens    int         `json:"tokens"`
	Documents *int64      `json:"documents"`        // null if they are not known
	End       *int64      `json:"end_id,omitempty"` // the id by which documents were counted, if the format does not record them
	Min       *int64      `json:"min_id"`           // null if there are no tokens
	Max       *int64      `json:"max_id"`
}

func inspectCommand() *cobra.Command {
	var asJSON bool
	var dtype string
	c := &cobra.Command{
		Use:   "inspect FILE.bin",
		Short: "Check a token file of llm.c, Megatron-LM or nanoGPT and print its contents",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if dtype != "" && dtype != "u16" && dtype != "u32" {
				return usageError{fmt.Errorf("--dtype %s: want u16 or u32", dtype)}
			}
			t, err := data.OpenTokens(args[0], dtype)
			if err != nil {
				return usageError{err}
			}
			found := tokenFile{Format: t.Format, Type: t.Type(), Tokens: t.Len()}
			if t.Documents != data.Unrecorded {
				found.Documents = &t.Documents
			} else {
				end := endOf(args[0], t)
				if n := t.Count(end); n > 0 {
					found.Documents, found.End = &n, &end
				}
			}
			if low, high := t.Span(); t.Len() > 0 {
				found.Min, found.Max = &low, &high
			}
			return errors.Join(tellAnswer(c, found, asJSON), t.Close())
		},
	}
	c.Flags().StringVar(&dtype, "dtype", "", "u16 or u32: type of the ids of a file without a header, as nanoGPT's")
	c.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return c
}

// endOf returns the id that ends documents in a token file, by the tokenizer that data prepare left
// beside it; -1 if that one cannot be read or has none.
func endOf(path string, t *data.Tokens) int64 {
	v, err := tokenizer.OpenVocabulary(data.Beside(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t.End()
	case err != nil:
		return -1
	}
	return int64(v.End)
}

// print writes the description for people.
func (f tokenFile) print(w io.Writer) error {
	number := func(n *int64, none string) string {
		if n == nil {
			return none
		}
		return strconv.FormatInt(*n, 10)
	}
	documents := number(f.Documents, "not recorded")
	if f.End != nil {
		documents += fmt.Sprintf(", counted by token %d, which ends them", *f.End)
	}
	_, err := fmt.Fprintf(w, "format     %s\ndtype      %s\ntokens     %d\ndocuments  %s\nmin id     %s\nmax id     %s\n",
		f.Format, f.Type, f.Tokens, documents, number(f.Min, "none"), number(f.Max, "none"))
	return err
}
