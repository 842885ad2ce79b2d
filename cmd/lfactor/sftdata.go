package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// tagsOf are an entry's names as the formats take them. In Alpaca's shape and ShareGPT's only what has a name is read, as in
// LoongForge; OpenAI's has names of its own.
func tagsOf(f *configs.SFTFormat) dataset.Tags {
	c, t := f.Columns, f.Tags
	out := dataset.Tags{Only: f.Format != "openai", Messages: c["messages"], Tools: c["tools"], Images: c["images"], Videos: c["videos"], SystemKey: c["system"],
		Instruction: c["prompt"], Input: c["query"], Output: c["response"], History: c["history"],
		Role: t["role_tag"], Content: t["content_tag"], User: t["user_tag"], Assistant: t["assistant_tag"], System: t["system_tag"], Tool: t["observation_tag"], Function: t["function_tag"]}
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

// sftOptions says how a path is opened by an entry. Where media are wanted, records come with the pictures and videos that they name;
// shards tell their format themselves.
func sftOptions(o dataset.Options, path string, f *configs.SFTFormat, media bool) dataset.Options {
	records := format.IsRecords(strings.ToLower(path))
	if media && records {
		o.Format, o.Media = "", true
	}
	if f == nil {
		return o
	}
	o.Tags = tagsOf(f)
	if records {
		o.Format = f.Format
	}
	return o
}

// sftFlags are the flags of commands that look at data, for conversations with other names than the usual ones.
type sftFlags struct {
	file, name string
	media      bool
}

func (s *sftFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&s.file, "dataset-config", "", "file with names of keys and roles, as LoongForge's sft_dataset_config.yaml")
	c.Flags().StringVar(&s.name, "dataset", "", "entry of --dataset-config, or one of those that LoongForge comes with")
	c.Flags().BoolVar(&s.media, "media", false, "conversations in JSON or Parquet come with the pictures and videos that they name")
}

// options applies the flags to a path.
func (s *sftFlags) options(o dataset.Options, path string) (dataset.Options, error) {
	if s.file == "" && s.name == "" {
		return sftOptions(o, path, nil, s.media), nil
	}
	name := s.name
	if name == "" {
		name = "default"
	}
	f, err := configs.FindSFT(s.file, name)
	if err != nil {
		return o, err
	}
	return sftOptions(o, path, &f, s.media), nil
}
