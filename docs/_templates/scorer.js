// Ranks a page or section by the share of its heading that the query covers. Settings and Python
// objects with the name in the query follow, then pages with the words of the query in their text.
var Scorer = {
  objNameMatch: 10,
  objPartialMatch: 0,
  objPrio: {},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  // Replaces a page by its best section, unless the title of the page is as good.
  score(result) {
    const [page, title, anchor, , score, , kind] = result;
    if (kind === "object") return score;
    if (kind === "index") {
      result[1] = `${title} > ${anchor.slice(1)}`;
      return score === 100 ? 10 : 4;
    }
    const headings = kind === "title" ? [[title.split(" > ").pop(), anchor]] : headingsOf(page);
    let best = Math.min(score, Scorer.term);
    best += 4 * covered(headings.map(([heading]) => heading).join(" ")).ofQuery;
    for (const [heading, place] of headings) {
      const { ofQuery, ofText } = covered(heading);
      const rank = 10 + 10 * ofText + 10 * (heading === title);
      if (ofQuery === 1 && rank > best) {
        best = rank;
        result[1] = kind === "title" || heading === title ? title : `${title} > ${heading}`;
        result[2] = heading === title ? "" : place;
      }
    }
    return best;
  },
};

// Returns the headings of a page with their anchors.
function headingsOf(page) {
  const file = Search._index.docnames.indexOf(page);
  return Object.entries(Search._index.alltitles).flatMap(([heading, places]) =>
    places.filter(([other]) => other === file).map(([, id]) => [heading, `#${id}`]),
  );
}

// Returns the shares of the words of the query and of the text that are in both. The case of an
// acronym matters: HER and PER are replay methods.
function covered(text) {
  const query = new URLSearchParams(window.location.search).get("q").trim();
  const stemmer = new Stemmer();
  const [asked, words] = [query, text].map((each) =>
    splitQuery(each.replaceAll("_", " ")).map((word) =>
      /^[A-Z]+$/.test(query) ? word : stemmer.stemWord(word.toLowerCase()),
    ),
  );
  const found = asked.filter((part) =>
    words.some((word) => (part.length < 3 ? word === part : word.startsWith(part))),
  );
  return { ofQuery: found.length / asked.length, ofText: found.length / words.length };
}
