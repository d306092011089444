"""A plain text of our own, to measure by: perplexity, and how far log-probabilities move when weights are rounded.

Nobody published it, so no model has learned it by heart.
"""

PARAGRAPHS = (
    """The ferry to the island leaves twice a day, at seven in the morning and at four in the afternoon. It is a
    small boat with a white hull and a blue funnel, and in summer it carries bicycles, crates of tomatoes,
    letters, and now and then a goat. In winter it carries hardly anyone. The captain, whose name is Marten, has
    made the crossing more than nine thousand times, and he says that he has never seen the same water twice.
    Most of his passengers think that this is a joke. It is not. He keeps a notebook in which he writes down the
    colour of the sea every morning, and there are forty years of colours in it.""",
    """Marten's sister runs the only shop on the island. She sells bread, lamp oil, nails, rope, soap, and a kind
    of hard cheese that keeps for a year. People come to the shop less for what they need than for what they
    might hear. If a boat was damaged in the night, if a child has learned to walk, if the schoolteacher is
    leaving, the shop knows it first. She never repeats what she is told in confidence, but she has a way of
    pausing before an answer that says nearly as much.""",
    """The island has one road, which goes around it, and one hill, which stands in the middle. From the top of
    the hill you can see the mainland on a clear day, and on a very clear day you can see the mountains behind
    it. There used to be a lighthouse at the northern end. It was switched off when ships began to find their way
    without it, and for some years it stood empty. Then a woman from the city bought it, repaired the roof, and
    began to build clocks there. She says that a lighthouse is a good place for clocks, because both of them tell
    people where they are.""",
    """A clock is a simple machine if you know what each part is for. A weight or a spring wants to fall or to
    unwind, and it would do so at once if nothing held it back. A train of wheels leads its force to a small
    wheel with pointed teeth, and there a lever catches one tooth after another. The lever is moved by a
    pendulum. Each time the pendulum swings, one tooth slips past, and the hands move forward by a fixed amount.
    All the art is in the pendulum, because it alone decides how long a second is. If the rod grows warm it
    becomes longer, and the clock runs slow. If the air is thick the swing is damped, and somebody must wind a
    little more often.""",
    """The clockmaker had an apprentice for three years, a boy from the village called Ivo. On his first day she
    gave him a box with the parts of a broken clock and asked him to sort them. He sorted them by size. She mixed
    them again and asked him to sort them by what they do. That took him until the spring, and when he had
    finished he could have built the clock with his eyes closed. Years later, when he repaired engines on the
    mainland, he told his own apprentices the same thing: a part that you have only measured is a part that you
    do not know yet.""",
    """Engines were his trade, but numbers were his pleasure. He liked to ask how many of something there could
    be. How many ways are there to tie three ropes to two posts? How many days in a year have a date in which
    every digit is different? He did not care much about the answers, which he often forgot. What he cared about
    was the moment in which a question stopped being a heap and became a shape. You count one case, then the
    next, and suddenly you see that the third must follow from the first two, and that you need not count any
    more.""",
    """In the autumn of that year it rained for twenty-six days. The road was under water in two places, and the
    school was closed because the roof let the rain in. The children were delighted for the first week and bored
    for the rest. The schoolteacher, a patient man with a large moustache, went from house to house and taught
    whoever was there, parents and grandparents included. In the fisherman's kitchen they did fractions with a
    pie. In the shop they weighed nails and learned what an average is. In the lighthouse they looked at gears
    and found out why a wheel with sixty teeth turns once while a wheel with ten teeth turns six times.""",
    """When the sun came back the whole island smelled of wet wood and seaweed. Doors that had swollen would not
    close, and people left them open. Somebody had the idea to hold the lessons outside from now on, at least
    until the roof was mended, and so the class sat on the steps of the harbour and the teacher wrote on the wall
    of the net store with chalk. Passengers who arrived with the ferry had to climb over the third grade. Some of
    them sat down and listened. One of them, an old judge who had come for the fishing, corrected a date, and
    from then on he taught history on Thursdays.""",
    """To build a wall without mortar you need more patience than strength. The largest stones go to the bottom,
    with their long sides pointing into the wall and not along it. Every stone should touch as many of its
    neighbours as it can. The gaps in the middle are filled with small stones, and these matter more than one
    would think, for a wall that is hollow inside will lean within ten winters. You build two faces that lean
    towards each other a little, and every yard or so you lay a stone that is long enough to reach from one face
    to the other. A good wall needs nothing but gravity, and gravity never takes a holiday.""",
    """The baker gets up at half past two. By the time the first light is in the east he has made four hundred
    rolls, and he will have eaten one of them, because he says that nobody should sell what he has not tasted.
    Flour, water, salt and time are all that goes into his bread, and of these, time is the most expensive. A
    dough that has rested for a night in a cool room tastes of nuts and of honey. A dough that was hurried with
    too much yeast tastes of yeast. His customers do not know the reason, but they know the difference, and they
    stand in line for it.""",
    """There is a disagreement on the island about the bell. The bell hangs in the tower of the small church, and
    it has been rung at noon for as long as anybody can remember. When the clockmaker came she noticed that it
    was rung nine minutes early. The sexton rang it when the sun stood over the gap between two rocks, as his
    father had done, and the sun does not keep the time of the railway. Half of the islanders were for the
    railway and half were for the sun. In the end they agreed to ring it twice, and ever since then lunch has
    lasted nine minutes longer.""",
    """A letter takes three days to the capital, if the sea is calm. The woman at the post office weighs each
    letter in her hand before she puts it on the scale, and she is seldom wrong by more than a gram. She can also
    tell from the handwriting whether it will be answered. Round letters that lean back a little are from people
    who like to receive mail but do not like to write it. Small upright ones are from people who want something.
    The long thin kind, with high loops, comes from those who are in love, and these are the only ones that she
    stamps with both hands.""",
    """If you ask people here what has changed in the last fifty years, they will name the electric light, the
    new harbour wall and the price of herring. If you ask them what has stayed the same they need longer. The
    wind, they say at last. The way the dogs lie in the middle of the road and expect to be walked around. The
    feeling on the evening boat, when the engine is switched off and the boat glides the last few yards by
    itself, and for a moment nobody says anything at all.""",
    """It was Ivo who found the map. He had come home for his mother's birthday, and because it rained he cleaned
    out the loft. Behind a trunk there was a roll of oilcloth, and in it a drawing of the island on a sheet of
    yellow paper. The coast was wrong in several places, or it had been different then. There was a second
    harbour where now there is only a meadow with sheep, and a house on the hill where nobody remembered a house.
    In one corner somebody had written a column of figures, and below it, underlined twice, the word "enough".""",
    """They took the map to the judge, since he knew about old paper. He held it against the light, smelled it,
    and asked for a magnifying glass. The paper had been made on the mainland, he said, in a mill that burned
    down a hundred and thirty years ago. The figures were depths, in fathoms, and whoever had written them had
    measured the second harbour at low water. It would have been deep enough for a ship with two masts. As for
    the word, he would not guess. A judge who guesses, he said, is a gambler with a pension.""",
    """The next morning eleven people with spades stood in the meadow. The sheep watched them from the wall. They
    dug along the line that the map showed, and a yard below the grass they came upon sand, then upon shells, and
    at last upon a row of black posts, each as thick as a man. The wood was hard as iron. It had been a landing
    stage once. The sea had filled the basin in, a little with every storm, and grass had grown over it, and
    within two lifetimes an entire harbour had been forgotten by people who lived within sight of it.""",
    """What does a place forget, and what does it keep? The teacher gave this question to his oldest pupils, and
    they wrote about it for a week. One girl wrote that names are kept longest, since the meadow had always been
    called the Anchorage and nobody had ever asked why. One boy wrote that songs are kept even longer, but that
    people no longer listen to the words. The smallest of them, who was not supposed to take part, handed in a
    single sentence. She wrote that a place keeps whatever is heavy and whatever is funny.""",
    """Marten read that sentence in the shop, where it had been pinned to the door, and he wrote it into his
    notebook between two mornings of grey. Then he went down to the boat, because it was nearly four. The engine
    coughed, as it always did, and caught. Three passengers, a crate of eggs and a clock in a wooden box were on
    board. The clock was ticking. It would be nine minutes ahead of the sun by the time it reached the mainland,
    or the sun would be nine minutes behind. He untied the rope, looked at the water, and tried to find a word
    for its colour.""",
)

TEXTS = tuple(" ".join(paragraph.split()) for paragraph in PARAGRAPHS)
"""One paragraph each, of about a hundred words, on one line."""
