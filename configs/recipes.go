package configs

import (
	"embed"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

//go:embed recipes/*.yaml
var recipeFiles embed.FS

// Recipe is a run file to begin with.
type Recipe struct {
	Name string `json:"recipe"`
	Doc  string `json:"doc"` // its first line
	Text string `json:"-"`   // the file
}

// Recipes lists the run files that come with lfactor, by name.
func Recipes() (out []Recipe) {
	files, err := recipeFiles.ReadDir("recipes")
	if err != nil {
		panic(err) // embedded
	}
	for _, f := range files {
		text, err := recipeFiles.ReadFile("recipes/" + f.Name())
		if err != nil {
			panic(err) // embedded
		}
		doc, _, _ := strings.Cut(string(text), "\n")
		out = append(out, Recipe{strings.TrimSuffix(f.Name(), ".yaml"), strings.TrimPrefix(doc, "# "), string(text)})
	}
	return out
}

// RecipeNamed is one of Recipes. An unknown name is an *Error, with the nearest name.
func RecipeNamed(name string) (Recipe, error) {
	var names []string
	for _, r := range Recipes() {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	try := source.DidYouMean(name, names)
	if try == "" {
		try = source.OneOf(names)
	}
	return Recipe{}, &Error{File: name, Why: "is no recipe that comes with lfactor", Try: try}
}
