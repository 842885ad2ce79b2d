package setup

import (
	"cmp"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// TagsOf are an entry's names as the formats take them. In Alpaca's shape and ShareGPT's only what has a
// name is read, as in LoongForge; OpenAI's has names of its own.
func TagsOf(f *configs.SFTFormat) dataset.Tags {
	c, t := f.Columns, f.Tags
	out := dataset.Tags{Only: f.Format != "openai", Messages: c["messages"], Tools: c["tools"], Images: c["images"],
		Videos: c["videos"], SystemKey: c["system"], Instruction: c["prompt"], Input: c["query"], Output: c["response"],
		History: c["history"], Role: t["role_tag"], Content: t["content_tag"], User: t["user_tag"],
		Assistant: t["assistant_tag"], System: t["system_tag"], Tool: t["observation_tag"], Function: t["function_tag"]}
	if f.From != nil {
		out.Only, out.Factory = true, f.Format
		if f.Format == "alpaca" { // where no turn has a role
			out.System = ""
		}
		if out.Label = c["kto_tag"]; f.Holds() == "preference" {
			out.Chosen, out.Rejected = c["chosen"], c["rejected"]
		}
	}
	if out.Tool == "" {
		out.Tool = t["tool_tag"]
	}
	if f.Format == "sharegpt" { // keys of a turn have the names that LoongForge's entries give them
		for key, usual := range map[*string]string{&out.Role: "role", &out.Content: "content"} {
			if *key == "" {
				*key = usual
			}
		}
	}
	return out
}

// SFTOptions says how a path is opened by an entry. Where media are wanted, records come with the images
// and videos that they name; shards tell their format themselves.
func SFTOptions(o dataset.Options, path string, f *configs.SFTFormat, media bool) dataset.Options {
	records := format.IsRecords(strings.ToLower(path))
	if media && records {
		o.Format, o.Media = "", true
	}
	if f == nil {
		return o
	}
	o.Tags = TagsOf(f)
	if records || f.From != nil && !media { // which may be of a folder
		o.Format = cmp.Or(f.Holds(), f.Format)
	}
	return o
}
