package verify

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteText writes the report as people read it: a table of partitions, the first differences, a verdict.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tPARTITION\tSOURCE\tDESTINATION\tRECORDS\tFILLERS\tDIFFERENCES")
	for i := range r.Partitions {
		p := &r.Partitions[i]
		fmt.Fprintf(t, "%s\t%d\t%d–%d\t%d–%d\t%d\t%d\t%d\n", p.Topic, p.Partition,
			p.Source.Start, p.Source.End, p.Destination.Start, p.Destination.End, p.Records, p.Fillers, p.Differences)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.writeDifferences(w); err != nil {
		return err
	}
	verdict := "equal"
	if !r.Equal {
		verdict = fmt.Sprintf("NOT EQUAL: %d differences", r.Differences)
	}
	_, err := fmt.Fprintf(w, "\n%s%s; %d records in %d partitions, %.1f s, %.0f MB/s read\n",
		verdict, r.Sample.text(), r.Records, len(r.Partitions), r.Seconds, float64(r.Bytes)/1e6/max(r.Seconds, 1e-3))
	return err
}

func (r *Report) writeDifferences(w io.Writer) error {
	var retyped, trimmed int64
	for i := range r.Partitions {
		retyped += r.Partitions[i].Retyped
		trimmed += r.Partitions[i].Trimmed
	}
	if retyped > 0 {
		fmt.Fprintf(w, "\n%d records have their timestamp from the source's broker (LogAppendTime) and keep it as CreateTime.\n", retyped)
	}
	if trimmed > 0 {
		fmt.Fprintf(w, "\n%d records were removed on one side while they were compared.\n", trimmed)
	}
	if len(r.First) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nThe first %d of %d differences:\n", len(r.First), r.Differences)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tPARTITION\tOFFSET\tWHAT\tSOURCE\tDESTINATION")
	for _, d := range r.First {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Topic, orDash(int64(d.Partition)), orDash(d.Offset), d.Field, d.Source, d.Destination)
	}
	return t.Flush()
}

// text is how a verdict goes on.
func (s *SampleReport) text() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(" in a sample of %g %% (--seed %d): %d of %d offsets", 100*s.Part, s.Seed, s.Offsets, s.Of)
}

func orDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// WriteText writes the report as people read it.
func (r *BatchReport) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tPARTITION\tVERBATIM\tOF THEM COMPRESSED\tREBUILT")
	for i := range r.Partitions {
		p := &r.Partitions[i]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", p.Topic, p.Partition, p.Verbatim, p.Compressed, p.Rebuilt)
	}
	if len(r.First) > 0 {
		fmt.Fprintln(t, "\nTOPIC\tPARTITION\tOFFSET\tSOURCE\tDESTINATION")
		for _, d := range r.First {
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\n", d.Topic, d.Partition, d.Offset, d.Source, d.Destination)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	verdict := "every batch is verbatim"
	if !r.Verbatim {
		verdict = "NOT VERBATIM: some batches were rebuilt"
	}
	_, err := fmt.Fprintf(w, "\n%s%s; %.1f s\n", verdict, r.Sample.text(), r.Seconds)
	return err
}
