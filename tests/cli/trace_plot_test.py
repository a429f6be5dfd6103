# SPDX-License-Identifier: Apache-2.0
"""lowtide trace plot: the page is opened in a browser without a screen and a network, and its numbers are read from it."""
import html.parser
import os
import re
import subprocess
import unittest
import xml.etree.ElementTree

from trace_test import BASE, GIB, TraceTest, training
from support import BROWSER, OK, USAGE
from trace_file import NO_DEVICE, TraceFile


class Elements(html.parser.HTMLParser):
    """Attributes of all elements, by tag."""

    def __init__(self, text):
        super().__init__()
        self.found = {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.setdefault(tag, []).append(dict(attributes))


class PlotTest(TraceTest):
    def plot(self, *files, name="page.html"):
        path = os.path.join(self.folder, name)
        result = self.lowtide("trace", "plot", "-o", path, *files)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (OK, "", ""))
        return path


class Page(PlotTest):
    def test_it_needs_no_network_and_no_other_file(self):
        with open(self.plot(self.file("a", training())), encoding="utf-8") as file:
            text = file.read()
        elements = Elements(text).found
        self.assertEqual([each for each in elements["script"] if "src" in each], [])
        self.assertNotIn("link", elements)
        self.assertNotRegex(text, r"@import|url\(['\"]?http")

    def test_the_licence_of_the_library_stands_in_it(self):
        with open(self.plot(self.file("a", training())), encoding="utf-8") as file:
            self.assertIn("http://www.apache.org/licenses/LICENSE-2.0", file.read())

    def test_a_name_cannot_end_the_data(self):
        trace = training()
        trace.event("phase", 60, "</script><script>alert(1)</script>", value=2, device=NO_DEVICE)
        with open(self.plot(self.file("a", trace)), encoding="utf-8") as file:
            self.assertEqual(len(Elements(file.read()).found["script"]), 3)


@unittest.skipIf(BROWSER is None, "no Chromium here")
class InABrowser(PlotTest):
    def drawn(self, *files):
        """The elements of the page once its script has run."""
        page = self.plot(*files)
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=20000",
                   "--window-size=1400,1200", f"--user-data-dir={self.folder}/browser", "file://" + page]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                                env={**os.environ, "HOME": self.folder})
        elements = Elements(result.stdout).found
        self.assertIn("data-drawn", elements.get("body", [{}])[0], result.stderr[-2000:])
        return elements, result.stdout

    def test_what_it_draws_has_the_peaks_of_the_report(self):
        files = [self.file("a", training()), self.file("b", training(pid=4712, device=1, weights=20)),
                 self.file("c", training(pid=4713, device=2, cache=50))]
        elements, _ = self.drawn(*files)
        self.assertEqual([int(section["data-peak"]) // GIB for section in elements["section"]], [59, 65, 71])
        self.assertEqual([float(section["data-axis"]) >= float(section["data-peak"]) for section in elements["section"]], [True] * 3)
        self.assertEqual(len(elements["canvas"]), 3)

    def test_a_peak_between_100000_events_is_still_there(self):
        trace = TraceFile()
        for i in range(50_000):
            trace.alloc(i / 100, BASE, GIB, "weights")
            if i == 31_234:
                trace.alloc(i / 100 + 0.001, BASE + GIB, 7 * GIB, "kv_cache")
                trace.event("free", i / 100 + 0.002, address=BASE + GIB, managed=True)
            trace.event("free", i / 100 + 0.005, address=BASE, managed=True)
        elements, _ = self.drawn(self.file("a", trace))
        (section,) = elements["section"]
        self.assertEqual(int(section["data-peak"]), 8 * GIB)
        self.assertLess(int(section["data-points"]), 7000)

    def test_its_table_says_what_the_report_says(self):
        file = self.file("a", training())
        _, text = self.drawn(file)
        for row in self.report(file)["tables"][0]["phases"]:
            cells = re.search(rf'data-phase="{row["phase"]}".*?</tr>', text).group(0)
            numbers = list(map(int, re.findall(r'data-bytes="(\d+)"', cells)))
            self.assertEqual(numbers[-2:], [row["used"], row["backups"]])
            self.assertEqual(numbers[:-2], [peak["bytes"] for peak in row["peaks"]])

    def test_a_trace_without_an_allocation_is_an_empty_page(self):
        trace = TraceFile()
        trace.event("phase", 1, "rollout", value=1, device=NO_DEVICE)
        elements, _ = self.drawn(self.file("a", trace))
        self.assertEqual(elements["body"][0]["data-drawn"], "0")


class Picture(PlotTest):
    def test_it_is_well_formed_whatever_names_hold(self):
        trace = training()
        trace.event("phase", 60, '<&">\x01', value=2, device=NO_DEVICE)
        trace.alloc(61, BASE + 600 * GIB, GIB, "<&>")
        trace.alloc(80, BASE + 601 * GIB, GIB, "<&>")
        for letters in range(58, 66):  # a character of several bytes lies across every place at which it may be cut
            trace.alloc(81, BASE + (700 + letters) * GIB, GIB, "x" * letters + "\u00e9\U0001f30a\uffff\udcff")
            trace.event("phase", letters * 2, "\u20ac" * letters, value=3, device=NO_DEVICE)
        root = xml.etree.ElementTree.parse(self.plot(self.file("a", trace), name="picture.svg")).getroot()
        words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertLessEqual({"process 4711 on node1, device 0", "weights", "kv_cache", "<&>", "train"}, set(words))

    def test_the_tags_that_get_no_colour_of_their_own_are_counted(self):
        for tags, words in ((17, ">1 smaller tag<"), (18, ">2 smaller tags<")):
            trace = TraceFile()
            for i in range(tags):
                trace.alloc(1 + i, BASE + i * GIB, GIB - i, f"tag_{i}")
            with open(self.plot(self.file("a", trace), name="picture.svg"), encoding="utf-8") as file:
                self.assertIn(words, file.read())

    def test_a_name_that_ends_otherwise_is_refused_with_the_endings_there_are(self):
        path = os.path.join(self.folder, "memory.png")
        result = self.lowtide("trace", "plot", "-o", path, self.file("a", training()))
        self.assertEqual(result.returncode, USAGE)
        self.assertRegex(result.stderr, r"memory\.png.*\.html.*\.svg")
        self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main()
