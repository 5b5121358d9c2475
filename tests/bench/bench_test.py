#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What turns samples into ratios and bars, on results made up for the purpose."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench/report"))
import bars  # noqa: E402
import conclusions  # noqa: E402
import docs  # noqa: E402
import inference  # noqa: E402
import plots  # noqa: E402
import results  # noqa: E402
import summary  # noqa: E402

# Given by the build: the program whose races the bars name.
PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else None


def result(races):
    document = {"format": results.FORMAT, "races": [{"name": n, "seconds": s, "facts": f} for n, (s, f) in races.items()]}
    return results.Result(document)


class Ratios(unittest.TestCase):
    def test_quartiles(self):
        self.assertEqual(results.quartiles([3.0]), (3.0, 3.0, 3.0))
        self.assertEqual(results.quartiles([5.0, 1.0, 3.0]), (2.0, 3.0, 4.0))

    def test_ratio_is_formed_within_a_round(self):
        # The machine became ten times slower halfway; the ratio did not.
        r = result({"full/x/float": ({"aft": [1.0, 10.0, 10.0], "sgemm": [0.5, 5.0, 5.0]}, {})})
        row, = bars.evaluate(r, [bars.Bar("full", "sgemm", "full/x/float", bars.speed("sgemm"), 0.4, 0.6)])
        self.assertEqual((row.q1, row.median, row.q3, row.verdict), (0.5, 0.5, 0.5, "first bar"))

    def test_fastest_round_of_each_side(self):
        r = result({"full/x/float": ({"aft": [1.0, 8.0, 2.0], "sgemm": [4.0, 0.5, 2.0]}, {})})
        row, = bars.evaluate(r, [bars.Bar("full", "sgemm", "full/x/float", bars.speed("sgemm"), 0.4, 0.6)])
        self.assertEqual((row.median, row.best), (1.0, 0.5))

    def test_fastest_of_several(self):
        self.assertEqual(bars.speed("a", "b")({"a": 4.0, "b": 6.0, "aft": 2.0}, {}), 2.0)

    def test_roof_takes_the_slower_ceiling(self):
        facts = {"flops.aft": 100.0, "bytes.aft": 10.0, "flops.sgemm": 50.0, "bytes.stream": 5.0, "bytes.stream_cached": 5.0}
        compute = {"aft": 4.0, "sgemm": 1.0, "stream": 0.25, "stream_cached": 0.5}
        self.assertEqual(bars.roof()(compute, facts), 2.0 / 4.0)
        memory = {"aft": 4.0, "sgemm": 0.1, "stream": 0.75, "stream_cached": 0.5}
        self.assertEqual(bars.roof()(memory, facts), 1.0 / 4.0)

    def test_rate_counts_each_side_its_own_flops(self):
        self.assertEqual(bars.rate("sgemm")({"aft": 2.0, "sgemm": 1.0}, {"flops.aft": 10.0, "flops.sgemm": 20.0}), 0.25)

    def test_most_lost_to_threads(self):
        self.assertEqual(bars.most_lost({"aft_1": 8.0, "aft_2": 4.0, "aft_10": 6.0, "sgemm_1": 1.0}, {}), 1.5)

    def test_verdicts(self):
        higher = bars.Bar("", "", "", None, 0.9, 0.98)
        lower = bars.Bar("", "", "", None, 0.62, 0.54, lower=True)
        verdicts = [bars.Row(b, v, v, v, v).verdict for b, v in ((higher, 0.89), (higher, 0.9), (higher, 0.98), (lower, 0.63),
                                                               (lower, 0.62), (lower, 0.54))]
        self.assertEqual(verdicts, ["missed", "first bar", "goal"] * 2)

    def test_race_without_the_other_side_has_no_row(self):
        r = result({"full/x/float": ({"aft": [1.0]}, {})})
        self.assertEqual(list(bars.evaluate(r, [bars.Bar("", "", "full/x/float", bars.speed("sdpa"), 1)])), [])


class Processors(unittest.TestCase):
    @staticmethod
    def said(*ranges):
        facts = [{"handover.least": low, "handover.most": high} for low, high in ranges]
        return conclusions.processors(result({str(i): ({"aft": [1.0]}, f) for i, f in enumerate(facts)}))

    def test_nothing_measured(self):
        self.assertEqual(conclusions.processors(result({"x": ({"aft": [1.0]}, {})})), "")

    def test_always_near(self):
        self.assertIn("40 ns at best, in no race", self.said((40.0, 60.0), (45.0, 79.0)))

    def test_apart_in_some(self):
        self.assertIn("40 ns at best. In 1 of 3 races it took up to 170 ns all the time, and in 1 for",
                      self.said((40.0, 60.0), (44.0, 180.0), (170.0, 190.0)))


class Inference(unittest.TestCase):
    @staticmethod
    def contexts(peers=True):
        def race(attention):
            seconds = {"aft_simple": [1e-6, 2e-6, 1e-6]}
            if peers:
                seconds |= {"sdpa": [attention, 2 * attention, attention], "eager": [9 * attention] * 3}
            return seconds, {"bytes.aft_simple": 64, "bytes.sdpa": 1e9 * attention}
        return result({f"contexts/T{T}_B{B}_d512/float": race(B * T * 1e-8) for T in (4096, 1024) for B in (1, 32)})

    def text(self, of):
        return " ".join("\n".join(inference.section(of)).split())

    def test_page_before_there_are_figures(self):
        self.assertIn("Not measured yet", self.text(None))
        self.assertTrue(plots.drawn_from(None).endswith("none"))

    def test_races_of_one_number_of_sequences_by_context(self):
        races = plots.context_races(self.contexts(), 1)
        self.assertEqual([T for T, _ in races], [1024, 4096])
        self.assertEqual([race.facts["bytes.sdpa"] for _, race in races], [10240.0, 40960.0])

    def test_compared_with_the_faster_attention_of_the_round(self):
        text = self.text(self.contexts())
        self.assertIn("simple 10 at 1024, 41 at 4096", text)  # one sequence
        self.assertIn("simple 330 at 1024, 1300 at 4096", text)
        self.assertIn("1 (10)", text)
        self.assertIn("| 1024 ", text)
        faster = result({"contexts/T1024_B1_d512/float": ({"aft_simple": [1.0], "sdpa": [6.0], "eager": [4.0]}, {})})
        self.assertEqual(inference.ahead(faster.races["contexts/T1024_B1_d512/float"], "aft_simple"), 4.0)

    def test_without_peers_nothing_is_said_of_them(self):
        text = self.text(self.contexts(peers=False))
        self.assertNotIn("times as long attention takes for a token", text)
        self.assertNotIn("1 (", text)
        self.assertIn("Not measured.", text)

    def test_one_slot_is_in_microseconds(self):
        r = result({"position_simple/S1_d64/float/one_thread": ({"aft": [1.5e-6]}, {})})
        row, = bars.evaluate(r, bars.inference())
        self.assertAlmostEqual(row.median, 1.5)
        self.assertEqual(row.verdict, "first bar")

    def test_chunks_against_the_uncut_call(self):
        r = result({"prefill_full/B1_T4096_d512/float": ({"aft_uncut": [9.0], "aft_chunks": [10.0], "aft_whole": [1.0]}, {})})
        row, = bars.evaluate(r, bars.inference())
        self.assertEqual((row.median, row.verdict), (0.9, "first bar"))


class SparseFilters(unittest.TestCase):
    def test_beside_simple_in_the_same_round(self):
        r = result({"conv_sparse/14x14_m1_B256_d384_H32/float": ({"aft": [2e-3, 6e-3, 9e-3], "simple": [1e-3, 2e-3, 9e-3]}, {})})
        text = "\n".join(docs.sparse_filters(r))
        self.assertIn("| 32 heads | 6   | 2      | 2 ", text)
        self.assertNotIn("one head", text)
        row, = bars.evaluate(r, bars.ceilings())
        self.assertEqual((row.median, row.verdict), (2.0, "missed"))

    def test_nothing_where_it_was_not_raced(self):
        self.assertEqual(list(docs.sparse_filters(result({}))), [])


class Documents(unittest.TestCase):
    def test_condense_and_read_back(self):
        run = {"run_type": "iteration", "name": "full/x/float/iterations:1/repeats:2/manual_time", "threads": 1,
               "run_name": "full/x/float/iterations:1/repeats:2/manual_time", "iterations": 1, "real_time": 1.0,
               "cpu_time": 1.0, "time_unit": "ms", "aft": 0.125, "flops.aft": 7.0}
        broken = dict(run, run_name="y/iterations:1", error_occurred=True, error_message="no")
        races, errors = results.condense(
            {"benchmarks": [run, dict(run, aft=0.25), dict(run, run_type="aggregate", aft=9.0), broken]})
        self.assertEqual(errors, ["y: no"])
        self.assertEqual(races, [{"name": "full/x/float", "seconds": {"aft": [0.125, 0.25]}, "facts": {"flops.aft": 7.0}}])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "r.json")
            results.write({"format": results.FORMAT, "races": races}, path)
            self.assertEqual(results.Result.read(path).races["full/x/float"].median("aft"), 0.1875)
            self.assertEqual(json.loads(path.read_text(encoding="utf-8"))["races"], races)

    def test_summary_stands_between_its_marks(self):
        race = {"name": f"full/{bars.LONG}/float", "seconds": {"aft": [2.0], "sgemm": [1.0]}, "facts": {}}
        machine = {"cpu": "a processor", "family": 1, "model": 2}
        r = results.Result({"format": results.FORMAT, "races": [race], "machine": machine, "commit": "c" * 40,
                            "date": "2026-01-01", "threads": 1, "flags": "-O3"})
        page = summary.inserted(f"above\n{summary.BEGIN}\nstale\n{summary.END}\nbelow\n", {"native": r})
        self.assertTrue(page.startswith("above\n") and page.endswith("\nbelow\n"))
        self.assertIn("| full, dense ", page)
        self.assertIn("a 0.5 ", page)
        self.assertNotIn("stale", page)
        self.assertEqual(summary.inserted(page, {"native": r}), page)
        with self.assertRaises(SystemExit):
            summary.inserted("no marks", {"native": r})

    @unittest.skipUnless(PROGRAM, "needs the benchmark program")
    def test_bars_name_races_that_exist(self):
        listed = subprocess.run([PROGRAM, "--benchmark_list_tests"], check=True, capture_output=True, text=True).stdout
        races = {line.split("/iterations:")[0] for line in listed.splitlines()}
        for _, group in bars.GROUPS:
            for bar in group():
                self.assertIn(bar.race, races)


if __name__ == "__main__":
    unittest.main()
