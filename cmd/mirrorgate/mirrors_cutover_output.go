package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// cutoverOutput is the JSON of "mirrors cutover".
type cutoverOutput struct {
	Mirror string `json:"mirror"`
	// Outcome is done, rolled back, refused, aborted or possible; empty if it failed in between.
	Outcome           string `json:"outcome"`
	Reason            string `json:"reason,omitempty"`
	WritePauseMs      int64  `json:"writePauseMs"`
	WritePauseAtLeast bool   `json:"writePauseAtLeast,omitempty"`
	// LeftBehind is how many offsets the source had behind the stop, when it was asked after it.
	LeftBehind int64          `json:"leftBehind"`
	Topics     []stoppedTopic `json:"topics"`
	Groups     groupsSynced   `json:"groups"`
}

// describe takes over what a mirror looks like.
func (o *cutoverOutput) describe(m describedMirror) {
	o.Topics, o.Groups = stopsOf(m), groupsOf(m)
	o.LeftBehind = 0
	if o.Outcome == "done" {
		o.LeftBehind, _, _, _ = lagOf(o.Topics)
	}
}

func (o *cutoverOutput) print(cmd *cobra.Command, f *gatewayFlags) error {
	w := cmd.OutOrStdout()
	if f.json {
		return printJSON(w, o)
	}
	if o.Outcome == "aborted" {
		_, err := fmt.Fprintf(w, "Producers at the gateway wait no more; the mirror goes on.\n")
		return err
	}
	if err := printStops(w, o.Topics); err != nil {
		return err
	}
	switch o.Outcome {
	case "possible":
		fmt.Fprintf(w, "\nA cut-over could begin. Nothing was changed.\n")
	case "done":
		fmt.Fprintf(w, "\nCut over, and writable: %s.\n", strings.Join(o.names(), ", "))
		pause, atLeast := time.Duration(o.WritePauseMs)*time.Millisecond, ""
		if o.WritePauseAtLeast {
			atLeast = "at least "
		}
		if pause > 0 {
			fmt.Fprintf(w, "Producers at the gateway waited for %s%s.\n", atLeast, pause.Round(10*time.Millisecond))
		}
	}
	_, err := fmt.Fprintln(w, o.Groups)
	return err
}

func (o *cutoverOutput) names() []string {
	names := make([]string, len(o.Topics))
	for i, topic := range o.Topics {
		names[i] = topic.Name
	}
	return names
}
