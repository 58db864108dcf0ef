"""Class lists of the benchmarks, as they were published. Facts about data sets, in the publishers' spelling.

* miniImageNet, 64/16/20: Ravi and Larochelle 2017, "Optimization as a Model for Few-Shot Learning", the
  `train.csv`, `val.csv` and `test.csv` of their released code. (Vinyals et al. 2016, who proposed the data
  set, drew other classes of ImageNet, 80/20.) The names are WordNet ids.
* CIFAR-FS, 64/16/20: Bertinetto et al. 2019, "Meta-learning with differentiable closed-form solvers", the
  `splits/bertinetto/*.txt` of their archive.
* FC100, 60/20/20: Oreshkin et al. 2018, "TADAM: Task dependent adaptive metric for improved few-shot
  learning": whole superclasses of CIFAR-100, so that no superclass is in two splits.
* CIFAR-100: Krizhevsky 2009, its 20 superclasses of five classes each.
"""

MINIIMAGENET_TRAIN = """
    n01532829 n01558993 n01704323 n01749939 n01770081 n01843383 n01910747 n02074367 n02089867 n02091831
    n02101006 n02105505 n02108089 n02108551 n02108915 n02111277 n02113712 n02120079 n02165456 n02457408
    n02606052 n02687172 n02747177 n02795169 n02823428 n02966193 n03017168 n03047690 n03062245 n03207743
    n03220513 n03337140 n03347037 n03400231 n03476684 n03527444 n03676483 n03838899 n03854065 n03888605
    n03908618 n03924679 n03998194 n04067472 n04243546 n04251144 n04258138 n04275548 n04296562 n04389033
    n04435653 n04443257 n04509417 n04515003 n04596742 n04604644 n04612504 n06794110 n07584110 n07697537
    n07747607 n09246464 n13054560 n13133613
""".split()

MINIIMAGENET_VAL = """
    n01855672 n02091244 n02114548 n02138441 n02174001 n02950826 n02971356 n02981792 n03075370 n03417042
    n03535780 n03584254 n03770439 n03773504 n03980874 n09256479
""".split()

MINIIMAGENET_TEST = """
    n01930112 n01981276 n02099601 n02110063 n02110341 n02116738 n02129165 n02219486 n02443484 n02871525
    n03127925 n03146219 n03272010 n03544143 n03775546 n04146614 n04149813 n04418357 n04522168 n07613480
""".split()

CIFAR_FS_TRAIN = """
    apple aquarium_fish bear bee bottle bowl boy bridge bus can castle caterpillar chair clock cloud
    cockroach couch cup dinosaur dolphin elephant forest girl hamster house kangaroo keyboard lawn_mower
    lion lizard lobster mountain mouse mushroom oak_tree orange orchid palm_tree pear pine_tree plate
    porcupine possum rabbit raccoon ray road seal shrew skunk skyscraper snake spider squirrel streetcar
    sunflower tank tiger train trout tulip turtle willow_tree wolf
""".split()

CIFAR_FS_VAL = """
    beaver beetle butterfly camel cattle crab crocodile flatfish lamp maple_tree motorcycle otter sea
    shark television tractor
""".split()

CIFAR_FS_TEST = """
    baby bed bicycle chimpanzee fox leopard man pickup_truck plain poppy rocket rose snail sweet_pepper
    table telephone wardrobe whale woman worm
""".split()

# Superclass -> its classes.
CIFAR100 = {
    "aquatic_mammals": "beaver dolphin otter seal whale".split(),
    "fish": "aquarium_fish flatfish ray shark trout".split(),
    "flowers": "orchid poppy rose sunflower tulip".split(),
    "food_containers": "bottle bowl can cup plate".split(),
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper".split(),
    "household_electrical_devices": "clock keyboard lamp telephone television".split(),
    "household_furniture": "bed chair couch table wardrobe".split(),
    "insects": "bee beetle butterfly caterpillar cockroach".split(),
    "large_carnivores": "bear leopard lion tiger wolf".split(),
    "large_man-made_outdoor_things": "bridge castle house road skyscraper".split(),
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea".split(),
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo".split(),
    "medium_mammals": "fox porcupine possum raccoon skunk".split(),
    "non-insect_invertebrates": "crab lobster snail spider worm".split(),
    "people": "baby boy girl man woman".split(),
    "reptiles": "crocodile dinosaur lizard snake turtle".split(),
    "small_mammals": "hamster mouse rabbit shrew squirrel".split(),
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree".split(),
    "vehicles_1": "bicycle bus motorcycle pickup_truck train".split(),
    "vehicles_2": "lawn_mower rocket streetcar tank tractor".split(),
}

FC100_TRAIN_SUPERCLASSES = """
    fish flowers food_containers fruit_and_vegetables household_electrical_devices household_furniture
    large_man-made_outdoor_things large_natural_outdoor_scenes reptiles trees vehicles_1 vehicles_2
""".split()

FC100_VAL_SUPERCLASSES = """
    large_carnivores large_omnivores_and_herbivores non-insect_invertebrates small_mammals
""".split()

FC100_TEST_SUPERCLASSES = """
    aquatic_mammals insects medium_mammals people
""".split()
