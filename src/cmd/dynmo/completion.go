package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/dynamic"
	"dynmo/src/lab/roofline"
	"dynmo/src/nodebench"
)

// completer returns the completions of the beginning of a word.
type completer = cobra.CompletionFunc

// arguments has, by command path, how the arguments of a command are completed. Arguments of other
// commands are files, or do not exist.
var arguments = map[string]completer{
	"dynmo train": files("toml"), "dynmo plan": files("toml"), "dynmo simulate": files("toml"), "dynmo profile": files("toml"),
	"dynmo table": folders, "dynmo report": folders,
	"dynmo ckpt inspect": files("safetensors"),
	"dynmo data inspect": files("bin"),
}

// flagValues has, by flag and command path, how the values of a flag are completed. The path ""
// stands for all commands. Values of other flags are files.
var flagValues = map[string]map[string]completer{
	"set": {"": settingsOf}, "costs": {"": files("json", "jsonl")}, "network": {"": wordsOrFiles(roofline.Names()...)}, "loads": {"": files("json")},
	"run-dir": {"": folders}, "balancer": {"": words(balancers...)}, "dynamic": {"": words(dynamisms()...)},
	"clock": {"": words("wall", "virtual")}, "require": {"": words(examNames()...)},
	"tokenizer": {"dynmo data prepare": wordsOrFiles(gpt2, sentencePiece), "dynmo sample": wordsOrFiles("bytes", gpt2)},
	"model":     {"dynmo bench sample": words(slices.Sorted(maps.Keys(nodebench.Sampled))...)},
	"format": {
		"dynmo data prepare": words(string(data.LLMC), string(data.Megatron)),
	},
	"dtype":      {"": words("float32", "bfloat16", "float16")},
	"model-type": {"": words("llama", "mistral", "mixtral", "llama_moe")},
	"router":     {"": words("linear", "mlp")},
}

// files completes to files with these endings.
func files(endings ...string) completer {
	return cobra.FixedCompletions(endings, cobra.ShellCompDirectiveFilterFileExt)
}

// folders completes to folders.
func folders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// words completes to one of a few words.
func words(list ...string) completer {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

// wordsOrFiles completes to one of a few words, or to files.
func wordsOrFiles(list ...string) completer {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveDefault)
}

// dynamisms returns the values of --dynamic.
func dynamisms() []string {
	names := []string{allKinds}
	for _, w := range dynamic.Workloads() {
		names = append(names, w.Name)
	}
	return names
}

// settingsOf completes a table.key=value. A value of free text is completed to files.
func settingsOf(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	var list []string
	for _, f := range config.Complete(word) {
		list = append(list, cobra.CompletionWithDesc(f.Text, f.Meaning))
	}
	switch valued := strings.Contains(word, "="); {
	case !valued:
		return list, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	case list == nil:
		return nil, cobra.ShellCompDirectiveDefault
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// completed adds completion to all commands below c.
func completed(c *cobra.Command) {
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = arguments[c.CommandPath()]
	}
	for flag, by := range flagValues {
		complete := by[c.CommandPath()]
		if complete == nil {
			complete = by[""]
		}
		if complete == nil || c.Flags().Lookup(flag) == nil && c.PersistentFlags().Lookup(flag) == nil {
			continue
		}
		if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err)
		}
	}
	for _, child := range c.Commands() {
		completed(child)
	}
}

// behindEquals adapts cobra's script for bash. Bash's readline replaces only the part of a word
// behind its last "=".
const behindEquals = `
__dynmo_behind_equals() {
    __start_dynmo "$@"
    if [[ $COMP_WORDBREAKS == *=* && ( ${COMP_WORDS[COMP_CWORD]} == "=" || ${COMP_WORDS[COMP_CWORD-1]} == "=" ) ]]; then
        COMPREPLY=("${COMPREPLY[@]#*=}")
    fi
}
complete -o default -F __dynmo_behind_equals dynmo
`

// addCompletion adds cobra's command that prints completion scripts.
func addCompletion(root *cobra.Command) {
	completed(root)
	root.InitDefaultCompletionCmd()
	bash, _, err := root.Find([]string{"completion", "bash"})
	if err != nil {
		panic(err)
	}
	bash.RunE = func(c *cobra.Command, _ []string) error {
		bare, err := c.Flags().GetBool("no-descriptions")
		if err == nil {
			err = root.GenBashCompletionV2(c.OutOrStdout(), !bare)
		}
		if err == nil {
			_, err = fmt.Fprint(c.OutOrStdout(), behindEquals)
		}
		return err
	}
}
