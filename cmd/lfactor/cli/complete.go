package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/configs"
)

// CompleteKeys completes the settings of commands that take key=value: names of keys with what they mean,
// and behind "=" the values that a key takes. A word that begins no key is left to the shell, which completes files.
func CompleteKeys(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	name, value, assigned := strings.Cut(word, "=")
	var out []string
	for _, k := range configs.Keys() {
		switch {
		case assigned && k.Name == name:
			for _, v := range values(&k) {
				if strings.HasPrefix(v, value) {
					out = append(out, name+"="+v)
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		case !assigned && word != "" && strings.HasPrefix(k.Name, word):
			out = append(out, k.Name+"=\t"+k.Doc)
		}
	}
	return out, cobra.ShellCompDirectiveNoSpace
}

func values(k *configs.Key) []string {
	if k.Type == "boolean" {
		return []string{"true", "false"}
	}
	return k.OneOf
}

// CompleteNames completes a key or a section.
func CompleteNames(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return CompleteKeys(nil, args, word)
	}
	var out []string
	for _, k := range configs.Keys() {
		if strings.HasPrefix(k.Name, word) {
			out = append(out, k.Name+"\t"+k.Doc)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
