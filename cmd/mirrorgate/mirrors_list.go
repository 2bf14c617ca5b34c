package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// listOutput is the JSON of "mirrors list".
type listOutput struct {
	Mirrors []listedMirror `json:"mirrors"`
}

type listedMirror struct {
	Name            string `json:"name"`
	SourceBootstrap string `json:"sourceBootstrap"`
	TopicCount      int32  `json:"topicCount"`
}

func newMirrorsListCommand(f *gatewayFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the mirrors",
		Long: `Lists the mirrors with the bootstrap servers of their sources and the number of their topics; topics that were
removed do not count.

JSON: {"mirrors": [{"name", "sourceBootstrap", "topicCount"}]}`,
		Example: `  mirrorgate mirrors list --bootstrap-server gateway:9092
  mirrorgate mirrors list --bootstrap-server gateway:9092 --command-config client.properties --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			g, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer g.close()
			resp, err := ask[*mirrormsg.ListMirrorsResponse](cmd.Context(), g, mirrormsg.NewPtrListMirrorsRequest())
			if err == nil {
				err = answered(resp.ErrorCode, nil)
			}
			if err != nil {
				return fmt.Errorf("listing mirrors: %w", err)
			}
			return printList(cmd, f, resp)
		},
	}
}

func printList(cmd *cobra.Command, f *gatewayFlags, resp *mirrormsg.ListMirrorsResponse) error {
	out := listOutput{Mirrors: []listedMirror{}}
	rows := [][]string{{"MIRROR", "SOURCE", "TOPICS"}}
	for _, m := range resp.Mirrors {
		out.Mirrors = append(out.Mirrors, listedMirror{m.MirrorName, m.SourceBootstrap, m.TopicCount})
		rows = append(rows, []string{m.MirrorName, m.SourceBootstrap, fmt.Sprint(m.TopicCount)})
	}
	switch {
	case f.json:
		return printJSON(cmd.OutOrStdout(), out)
	case len(resp.Mirrors) == 0:
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "There are no mirrors; 'mirrorgate mirrors create' makes one.")
		return err
	}
	return printTable(cmd.OutOrStdout(), rows)
}
