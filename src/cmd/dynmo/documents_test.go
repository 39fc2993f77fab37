package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// documents returns the Markdown files of the repository.
func documents(t *testing.T) (list []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "*/*.md", "jobs/env/*.md", "src/cmd/dynmo/help/*.md"} {
		found, err := filepath.Glob("../../../" + pattern)
		expect.OK(t, err)
		list = append(list, found...)
	}
	return list
}

var (
	commandIn = regexp.MustCompile("(?m)(?:^|[ `(])(?:bin/)?dynmo ((?:help|train|table|report|plan|simulate|balance|profile|bench|data|ckpt|sample|doctor)(?: [^`\n#|]*)?)")
	settingIn = regexp.MustCompile("(?:`|--set )([a-z]+\\.[a-z][a-z_0-9]*)(?:`|=| = )")
	linkIn    = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	fileIn    = regexp.MustCompile("(?:^|[ `(])((?:jobs|bench|results|csrc|src)/[A-Za-z0-9_/.-]*[A-Za-z0-9_])")
)

// TestDocuments: all commands, flags, settings, links and files that a Markdown file names exist.
func TestDocuments(t *testing.T) {
	all := documents(t)
	if len(all) < 12 {
		t.Fatalf("documents: %q", all)
	}
	settings, ending := config.Default().TOML(), regexp.MustCompile(`\.(go|cu?|bin|txt|sh|sbatch|lock|toml|jsonl?|tokenizer|model)$`)
	for _, file := range all {
		raw, err := os.ReadFile(file)
		expect.OK(t, err)
		text := strings.ReplaceAll(string(raw), "\\\n", " ")
		for _, m := range commandIn.FindAllStringSubmatch(text, -1) {
			checkCommand(t, file, strings.TrimSpace(m[1]))
		}
		for _, m := range settingIn.FindAllStringSubmatch(text, -1) {
			table, key, _ := strings.Cut(m[1], ".")
			_, rest, _ := strings.Cut(settings, "\n["+table+"]\n")
			if body, _, _ := strings.Cut(rest, "\n["); !ending.MatchString(m[1]) && !regexp.MustCompile(`(?m)^#? ?`+key+` = `).MatchString(body) {
				t.Errorf("%s: %s is no setting", file, m[1])
			}
		}
		for _, m := range linkIn.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s: link: %v", file, err)
			}
		}
		for _, m := range fileIn.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "NAME") || strings.HasSuffix(m[1], "/local.sh") { // the user's own files
				continue
			}
			if _, err := os.Stat("../../../" + m[1]); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// checkCommand reports commands and flags in a line that do not exist.
func checkCommand(t *testing.T, file, line string) {
	t.Helper()
	words := strings.Fields(strings.NewReplacer(`"`, "", "'", "", ")", "", ",", "", ";", "", ":", " ").Replace(line))
	root := rootCommand()
	root.InitDefaultHelpCmd()
	if words[0] == "help" {
		if len(words) > 1 && !slices.ContainsFunc(strings.Split(words[1], "|"), func(name string) bool {
			c, _, err := root.Find([]string{name})
			return err == nil && c != root
		}) {
			t.Errorf("%s: dynmo %s: no such topic", file, line)
		}
		return
	}
	c, _, err := root.Find(words)
	if err != nil || c == root || c.HasSubCommands() && len(words) > 1 && !strings.HasPrefix(words[1], "-") {
		t.Errorf("%s: dynmo %s: no such command (%v)", file, line, err)
		return
	}
	for _, w := range words {
		name, isFlag := strings.CutPrefix(w, "--")
		name, _, _ = strings.Cut(strings.Trim(name, ".`"), "=")
		if isFlag && name != "help" && c.Flags().Lookup(name) == nil {
			t.Errorf("%s: dynmo %s: no flag --%s", file, line, name)
		}
	}
}
