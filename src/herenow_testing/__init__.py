"""For whoever tests herenow or an adapter of their own: contract suites, engines that fail on purpose, clocks moved by
hand. The contract suites need pytest; nothing else in herenow imports from here."""
