package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// mirrorOutput is the JSON of "mirrors delete" and "mirrors alter".
type mirrorOutput struct {
	Mirror       string       `json:"mirror"`
	ValidateOnly bool         `json:"validateOnly,omitempty"`
	Error        *answerError `json:"error,omitempty"`
}

func newMirrorsDeleteCommand(f *gatewayFlags) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Forget a mirror all of whose topics were removed",
		Long: `Deletes a mirror that has no topic any more but such that were removed ('mirrors remove-topics'). The destination's topics,
groups, settings and ACLs stay as they are, and clients go on using the topics by the same IDs. What goes is the mirror's
configuration, and up to where its topics were mirrored, which a mirror back to the source would ask for.

JSON: {"mirror", "error"?: {"code", "name", "message"}}`,
		Example: `  mirrorgate mirrors delete --bootstrap-server gateway:9092 --mirror east`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return errNoMirror
			}
			g, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer g.close()
			req := mirrormsg.NewPtrDeleteMirrorRequest()
			req.MirrorName = name
			resp, err := ask[*mirrormsg.DeleteMirrorResponse](cmd.Context(), g, req)
			if err != nil {
				return fmt.Errorf("deleting mirror %s: %w", name, err)
			}
			out := mirrorOutput{Mirror: name, Error: newAnswerError(resp.ErrorCode, resp.ErrorMessage)}
			return out.print(cmd, f, "deleting mirror "+name, "Deleted mirror "+name+".")
		},
	}
	cmd.Flags().StringVar(&name, "mirror", "", "name of the mirror (required)")
	return cmd
}

func (o mirrorOutput) print(cmd *cobra.Command, f *gatewayFlags, doing, done string) error {
	var err error
	if f.json {
		err = printJSON(cmd.OutOrStdout(), o)
	} else if o.Error == nil {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
	}
	if o.Error != nil {
		return errors.Join(fmt.Errorf("%s: %w", doing, o.Error), err)
	}
	return err
}
